"""No secret of a project is in what gpubench writes, and all works as if it were."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.projects import Project, Run

CONFTEST = """
def pytest_gpubench_environment(config):
    return {"api_token": "SECRET1", "artifacts": ["https://bot:SECRET2@host/"], "token_count": 512}
"""
TESTS = """
import pytest

LONG = "x" * 1980 + " postgresql://bob:SECRET3@db/x"
URLS = ["redis://:SECRET4a@cache/0", "redis://:SECRET4b@cache/0", "4x512"]

def test_fails(gpubench):
    raise ConnectionError("no postgresql://bob:SECRET5@db/x, key ghp_SECRET6SECRET6SECRET6")

def test_fails_at_length(gpubench):
    raise ConnectionError(LONG)

def test_skips(gpubench):
    pytest.skip("no s3://key:SEC RET7@bucket: password=SECRET8")

@pytest.mark.xfail(reason="see https://bot:SECRET9@host")
def test_is_expected_to_fail(gpubench):
    assert False

def test_catches(gpubench):
    def step():
        raise OSError("no redis://:SECRET10@cache")
    with pytest.raises(OSError):
        gpubench(step)

@pytest.mark.parametrize("url", URLS)
def test_url(gpubench, url):
    gpubench(lambda: sum(range(99)))

@pytest.mark.parametrize("url", [pytest.param(URLS[0], id="named")])
def test_named(gpubench, url):
    gpubench(lambda: sum(range(99)))

def test_notes(gpubench):
    gpubench.group = "of redis://:SEC RET12@cache"
    gpubench.extra_info["password"] = "SECRET13"
    gpubench(lambda: sum(range(99)))

@pytest.mark.parametrize("url", [u.replace("SECRET4", "SECRET11") for u in URLS])
def test_adopted(benchmark, url):
    benchmark.extra_info["cache"] = url
    benchmark.pedantic(sum, ([1, 2],), rounds=9)
"""
URLS = ["0-redis://***@cache/0", "1-redis://***@cache/0", "4x512"]
MEASURED = {f"test_{name}[{url}]" for name in ("url", "adopted") for url in URLS} | {
    *("test_named[named]", "test_notes")
}


@pytest.fixture(scope="module")
def secretive(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with secrets wherever its tests may have some."""
    project = InlineProject(tmp_path_factory.mktemp("secretive"))
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TESTS)
    return project


@pytest.fixture(scope="module")
def run(secretive: Project) -> Run:
    """A session of it."""
    return secretive.run(
        "--adopt",
        "--benchmark-json=saved.json",
        "-p",
        "no:cacheprovider",
        env={"GPUBENCH_REGISTRY": "sqlite:///results/registry.sqlite"},
    )


def _with_secrets(folder: Path) -> dict[str, list[str]]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    found = {file.name: re.findall(rb"SEC ?RET\w+", file.read_bytes()) for file in files}
    return {name: secrets for name, secrets in found.items() if secrets}


def test_no_secret_is_in_any_file_or_table(run: Run) -> None:
    """Reasons, facts, parameters and ids have none, and what is none stays."""
    assert run.code == 1, run.out + run.err
    names = {file.name for file in run.results.rglob("*") if file.is_file()}
    assert {"registry.sqlite", "run.log", "system.json", "summary.csv", "benchmark.json"} <= names
    assert _with_secrets(run.results) == {}
    of_ours = run.out.partition("= gpubench =")[2].partition("- benchmark: ")[0]
    assert re.findall(r"SEC ?RET\w+", of_ours) == []
    environment = run.summary["environment"]
    assert (environment["api_token"], environment["token_count"]) == ("***", 512)
    reasons = {b["name"]: b["reason"] for b in run.summary["benchmarks"]}
    assert reasons["test_fails"] == "ConnectionError: no postgresql://***@db/x, key ***"
    assert reasons["test_skips"] == "no s3://***@bucket: password=***"


def test_ids_stay_as_many_as_they_are(secretive: Project, run: Run) -> None:
    """Each is numbered by its value; pytest-benchmark's file has its own tests as ever."""
    assert {name for name, outcome in run.outcomes.items() if outcome == "measured"} == MEASURED
    ours = json.loads((run.directory / "benchmark.json").read_text())["benchmarks"]
    assert {benchmark["name"] for benchmark in ours} == MEASURED
    assert all("gpubench" in benchmark for benchmark in ours)
    saved = json.loads((secretive.path / "saved.json").read_text())["benchmarks"]
    (notes,) = (b for b in saved if b["name"] == "test_notes")
    assert (notes["group"], notes["extra_info"]) == ("of redis://***@cache", {"password": "***"})
    theirs = {b["name"] for b in saved if "test_adopted" in b["name"]}
    assert "test_adopted[redis://:SECRET11b@cache/0]" in theirs
    assert {b["name"] for b in saved} - theirs == {n for n in MEASURED if "adopted" not in n}


def test_such_ids_are_selected_compared_and_resumed(secretive: Project, run: Run) -> None:
    """By pytest's id a test is selected, alone it has the same name; a resumed run keeps it."""
    whole = json.loads((run.directory / "summary.json").read_text())
    selected = ("test_it.py::test_url[redis://:SECRET4b@cache/0]", "test_it.py::test_adopted")
    options = ("--adopt", "--results-dir=other", "-p", "no:cacheprovider", "-v")
    gated = ("--baseline", f"{run.directory}/summary.json", "--gate=threshold", "--allow-doubt")
    head = secretive.run(*options, *selected, *gated)
    (folder,) = (secretive.path / "other").glob("*/*")
    records = json.loads((folder / "summary.json").read_text())["benchmarks"]
    assert {record["id"] for record in records} < {record["id"] for record in whole["benchmarks"]}
    assert len(records) == 4
    verdicts = json.loads((folder / "verdicts.json").read_text())["benchmarks"]
    judged = {v["id"]: v["base"] for v in verdicts if v["id"] in {r["id"] for r in records}}
    assert len(judged) == 4, head.out
    assert None not in judged.values(), verdicts
    resumed = secretive.run(*options, *selected, f"--resume={folder}")
    assert "resumed: 4 already measured, 0 remaining" in resumed.out, resumed.out + resumed.err
    assert _with_secrets(secretive.path / "other") == {}


ON_RANKS = """
import pathlib, uuid
import pytest
from torch import distributed

@pytest.fixture(scope="module")
def made_once():
    pathlib.Path(f"made-{uuid.uuid4()}").touch()

@pytest.mark.gpubench(ranks=2)
@pytest.mark.parametrize("url", ["redis://:SECRETa@c/0", "redis://:SECRETb@c/0"])
def test_it(gpubench, process_group, made_once, url):
    print("connects to", url)
    gpubench(lambda: sum(range(99)))
    assert distributed.get_rank() == 0 or "b@" not in url, f"no {url}"
"""


def test_ranks_tell_none_either(project: Project) -> None:
    """Nor in how they ended; fixtures of several tests live on; ids end in the ranks."""
    project.write("test_it.py", ON_RANKS)
    run = project.run("-p", "no:cacheprovider")
    name = "test_it[{}-redis://***@c/0-ranks2]"
    assert run.outcomes == {name.format(0): "measured", name.format(1): "mismatched_ranks"}
    assert len([*project.path.glob("made-*")]) == 2
    assert any(line["event"] == "rank_ended" for line in run.journal)
    assert _with_secrets(run.results) == {}


@pytest.mark.parametrize(
    ("password", "code"),
    [("SECRET12-é%20%23x", 0), ("SECRET12 horse", 4), ("SECRET12#x", 4), ("SECRET12?x", 4)],
)
def test_a_registrys_password_is_in_no_output_or_file(
    project: Project, password: str, code: int
) -> None:
    """Nor in a message; one that is not encoded is refused before anything is written."""
    project.write("test_it.py", "def test_it(gpubench):\n    gpubench(lambda: sum(range(99)))\n")
    run = project.run(f"--registry=postgresql+psycopg://bob:{password}@127.0.0.1:1/db")
    assert run.code == code, run.out + run.err
    assert "registry" in run.out + run.err
    assert "SECRET12" not in run.out + run.err
    assert _with_secrets(project.path / "results") == {}
    assert len(run.directories) == (code == 0)
