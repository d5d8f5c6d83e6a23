"""An interrupted run goes on and measures only what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.projects import InlineProject, Project

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.own_process

TROUBLED = """
import os, resource, signal

def ran(name):
    with open("ran", "a") as file:
        file.write(name)

def in_trouble(name):
    return os.environ.get("TROUBLE") == name

def test_a(gpubench):
    ran("a")
    gpubench(__import__("la" + "zy").step)

def test_b(gpubench):
    ran("b")
    gpubench(lambda: in_trouble("kill") and os.kill(os.getpid(), signal.SIGKILL))

def test_c(gpubench):
    ran("c")
    gpubench(lambda: in_trouble("ctrl-c") and os.kill(os.getpid(), signal.SIGINT))

def test_d(gpubench):
    ran("d")
    import helper
    gpubench(helper.step)
    if in_trouble("disk"):  # no file may grow any more: what a full disk does, for any user
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
"""
RESTORED = """
import resource
def pytest_unconfigure():  # what watches this process may write again
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
"""


MODULES = ("helper.py", "lazy.py")
STEP = "def step(): ..."
NAMES = [f"test_{letter}" for letter in "abcd"]


class Resumed:
    """A run of the troubled project, killed in its second benchmark."""

    def __init__(self, project: Project):
        self.project = project
        project.write("test_it.py", TROUBLED)
        project.write("conftest.py", RESTORED)
        for name in MODULES:
            project.write(name, STEP)
        killed = project.run("-p", "no:cacheprovider", env={"TROUBLE": "kill"})
        assert killed.code < 0
        self.directory = killed.directory
        self.events = killed.journal

    def resume(self, *args: str, trouble: str = "") -> tuple[int, str, str]:
        """Exit code, output, and the letters of all benchmarks that ever ran."""
        flags = (f"--resume={self.directory.name}", "-p", "no:cacheprovider", *args)
        project = self.project if trouble else InlineProject(self.project.path)
        run = project.run(*flags, env={"TROUBLE": trouble})
        assert run.directory == self.directory
        self.events = run.journal
        return run.code, run.out + run.err, (self.project.path / "ran").read_text()

    def file(self, name: str | Path) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.directory / name).read_text())
        return loaded

    @property
    def contents(self) -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in self.directory.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    return Resumed(Project(tmp_path_factory.mktemp("project")))


def test_other_conditions_change_nothing(killed: Resumed) -> None:
    """Another configuration, other code and another machine are refused with every difference."""
    for name in MODULES:
        killed.project.write(name, "def step(): sum(range(1000))")
    facts = killed.file("system.json")
    (killed.directory / "system.json").write_text(json.dumps({**facts, "cpu": {"model": "abacus"}}))
    before = killed.contents
    code, said, ran = killed.resume("--measure.gc=true")

    assert (code, ran) == (4, "ab"), said
    error = "the conditions differ from those of the resumed run"
    assert f"ERROR: --resume={killed.directory.name}: {error}" in said
    assert "measure.gc: false in the run, true now (test_it.py::test_a, " in said
    assert 'cpu.model: "abacus" in the run, ' in said
    assert "code: helper.py (changed), lazy.py (changed); restore it, or " in said
    assert killed.contents == before
    for name in MODULES:
        killed.project.write(name, STEP)
    (killed.directory / "system.json").write_text(json.dumps(facts))


def test_damaged_files_are_one_line_each(killed: Resumed) -> None:
    """Exit code 4 with the file's name: pytest does not break down."""
    for name in ("config_resolved.yaml", "metrics.jsonl", "system.json"):
        path = killed.directory / name
        before = path.read_bytes()
        path.write_bytes(before + b"[]\n" if name == "metrics.jsonl" else b"[" * 200_000)

        code, said, ran = killed.resume()

        assert (code, ran) == (4, "ab"), said
        assert f"ERROR: --resume={killed.directory.name}: {path}" in said
        assert "INTERNALERROR" not in said
        path.write_bytes(before)


def test_run_that_met_every_trouble_is_completed(killed: Resumed) -> None:  # the last one
    """Killed, interrupted, on a full disk: each time it goes on, and no number is lost."""
    began, last = killed.events[0], killed.events[-1]
    (first,) = (event for event in killed.events if event["event"] == "benchmark")
    assert sorted(began["code"]) == ["conftest.py", "helper.py", "lazy.py", "test_it.py"]
    assert (last["benchmark"], last["phase"]) == (f"test_it.py::{NAMES[1]}", "check")
    with (killed.directory / "metrics.jsonl").open("a") as lines:
        lines.write('{"schema_version": 1, "event": "benchm')

    code, said, ran = killed.resume(trouble="ctrl-c")
    assert (code, ran) == (2, "abbc"), said
    assert "resumed: 1 already measured, 3 remaining" in said
    assert killed.file("summary.json")["status"] == "interrupted"

    code, said, ran = killed.resume(trouble="disk")
    assert (code, ran) == (1, "abbccd"), said
    assert "cannot write " in said
    assert "Traceback" not in said
    assert not (killed.directory / "summary.json").exists()

    code, said, ran = killed.resume("-k", "test_a")
    assert (code, ran) == (0, "abbccd"), said
    assert "resumed: 1 already measured, 0 remaining" in said
    assert "3 measured, 1 not measured" in said
    assert killed.file("summary.json")["status"] == "interrupted"
    assert [b["name"] for b in killed.file("benchmark.json")["benchmarks"]] == NAMES[:3]

    code, said, ran = killed.resume("--benchmark-json=saved.json")
    assert (code, ran) == (0, "abbccdd"), said
    assert "3 deselected" in said
    assert "4 measured" in said

    resumed = [event for event in killed.events if event["event"] == "run_resumed"]
    assert [event["kept"] for event in resumed] == [1, 2, 1, 3]
    summary = killed.file("summary.json")
    assert (summary["status"], summary["started"]) == ("complete", began["time"])
    assert summary["resumed"] == [event["time"] for event in resumed]
    assert {b["name"]: b["outcome"] for b in summary["benchmarks"]} == dict.fromkeys(
        NAMES, "measured"
    )
    numbers = {name: metric["value"] for name, metric in first["metrics"].items()}
    assert {n: m["value"] for n, m in summary["benchmarks"][0]["metrics"].items()} == numbers
    for saved in (killed.file("benchmark.json"), killed.file(killed.project.path / "saved.json")):
        assert [b["name"] for b in saved["benchmarks"]] == NAMES
        assert saved["benchmarks"][0]["stats"]["step_time_s"] == numbers["step_time_s"]


@pytest.mark.exhaustive
def test_ranks_of_torchrun_leave_out_the_same(project: Project) -> None:
    """Under torchrun rank zero knows what was measured, and no rank runs it again."""
    project.write(
        "test_it.py",
        """
        import os, pathlib, pytest

        def ran(name):
            with open(f"ran-{os.environ['RANK']}", "a") as file:
                file.write(name)

        @pytest.mark.gpubench(ranks=2)
        def test_a(gpubench):
            ran("a")
            gpubench(lambda: None)

        @pytest.mark.gpubench(ranks=2)
        def test_b(gpubench):
            ran("b")
            assert "TROUBLE" not in os.environ
            gpubench(lambda: None)
        """,
    )
    failed = project.run(env={"TROUBLE": "yes"}, ranks=2)
    assert failed.code != 0
    assert failed.outcomes == {"test_a[ranks2]": "measured", "test_b[ranks2]": "failed"}
    name = failed.directory.name

    run = project.run(f"--resume={name[:20]}", ranks=2)

    assert run.code == 0, run.out + run.err
    assert run.directory.name == name
    assert run.outcomes == {"test_a[ranks2]": "measured", "test_b[ranks2]": "measured"}
    assert [(project.path / f"ran-{rank}").read_text() for rank in range(2)] == ["abb", "abb"]
    assert len(run.summary["resumed"]) == 1
