"""Baselines: every change explicit and kept, in files or on a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.baselines.model import BaselineFile
from gpubench_plugin.baselines.store import BaselineExists, Baselines
from gpubench_plugin.core.errors import RegistryError, ResultsError, UsageProblem
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.system import stored
from tests.support.schemas import DESCRIBES

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = "20260101T000000Z_run_000000"
LATER = "20260102T000000Z_run_000001"


@pytest.fixture(params=["files", "server"])
def baselines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Baselines]:
    """Those of a results directory, or of a server; the n-th change is made on day n."""
    days = iter(range(1, 20))

    def now() -> str:
        return f"2026-01-{next(days):02}T00:00:00.000000Z"

    with Registry.open("", tmp_path) as registry:
        yield Baselines(tmp_path, registry if request.param == "server" else None, now=now)


def test_a_baseline_is_read_as_it_was_set(baselines: Baselines) -> None:
    """Pins stand in the order of time, each once; who reads it anew reads the same."""
    made = baselines.set(
        "main", [LATER, RUN, RUN], branch="main", reason="the release", overridden=["it was dirty"]
    )
    assert made.runs == (RUN, LATER)
    assert made.protected_runs == {RUN, LATER}
    again = Baselines(baselines.results_dir, baselines.server)
    assert again.get("main") == made
    assert again.names() == ("main",)
    assert again.get("other") is None
    (change,) = made.changes
    assert (change.action, change.time[:10], change.reason) == ("set", "2026-01-01", "the release")
    assert change.forced == ("it was dirty",)


def test_every_change_is_kept_with_time_and_reason(baselines: Baselines) -> None:
    """Setting it anew resets acceptances if asked to; what was done before stays in the list."""
    baselines.set("main", [RUN], branch="main")
    baselines.accept("main", RUN, "test_a.py::test", reason="meant")
    accepted = baselines.accept("main", LATER, "test_a.py::test", reason="meant")
    assert accepted.accepted_runs == {"test_a.py::test": LATER}
    assert baselines.pinned() == {RUN: ("main",), LATER: ("main",)}
    assert baselines.set("main", [RUN], branch=None).acceptances == accepted.acceptances
    anew = baselines.set("main", [LATER], branch=None, reset_accepted=True)
    assert anew.acceptances == {}
    baselines.remove("main", reason="over")
    assert baselines.get("main") is None
    assert baselines.names() == ()
    assert baselines.pinned() == {}
    with pytest.raises(UsageProblem, match="none exists yet"):
        baselines.remove("main")
    again = baselines.set("main", [RUN], branch="main")
    assert [(change.action, change.reason) for change in again.changes] == [
        ("set", ""),
        ("accept", "meant"),
        ("accept", "meant"),
        ("set", ""),
        ("set", ""),
        ("remove", "over"),
        ("set", ""),
    ]
    assert again.changed.startswith("2026-01-07")
    assert again.acceptances == {}


@pytest.mark.parametrize(
    "name",
    [
        *("", "a/b", "..", ".hidden", "x" * 81, "a b", "ä"),
        *(RUN, "20260101", "2026", "main.json", "last"),
    ],
)
def test_a_name_is_a_folder_name_and_no_run_or_file(tmp_path: Path, name: str) -> None:
    """``--baseline`` takes all of them; nothing is written elsewhere."""
    with pytest.raises(UsageProblem, match="allowed"):
        Baselines(tmp_path).set(name, [RUN], branch=None)
    assert not list(tmp_path.glob("**/*.json"))


def test_an_acceptance_needs_a_reason_and_a_baseline(baselines: Baselines) -> None:
    """Blanks are none."""
    with pytest.raises(UsageProblem, match="no baseline named 'mian'"):
        baselines.accept("mian", RUN, "x", reason="y")
    baselines.set("main", [RUN], branch=None)
    with pytest.raises(UsageProblem, match="--reason"):
        baselines.accept("main", RUN, "x", reason=" \n")
    with pytest.raises(UsageProblem, match="did you mean 'main'"):
        baselines.require("mian")


def test_the_only_baseline_need_not_be_named(baselines: Baselines) -> None:
    """Of several one has to be named."""
    with pytest.raises(UsageProblem, match="no baseline exists yet"):
        baselines.the_only()
    baselines.set("a", [RUN], branch=None)
    assert baselines.the_only() == "a"
    baselines.set("b", [RUN], branch=None)
    with pytest.raises(UsageProblem, match="name one: a, b"):
        baselines.the_only()


def test_a_missing_baseline_is_set_and_a_standing_one_left(baselines: Baselines) -> None:
    """A removed one is missing; nothing is written where one stands."""
    first = baselines.set("main", [RUN], branch="main", if_missing=True)
    with pytest.raises(BaselineExists, match="main already exists and is left unchanged") as found:
        baselines.set("main", [LATER], branch=None, if_missing=True)
    assert found.value.baseline == first
    assert baselines.require("main") == first
    baselines.remove("main")
    assert baselines.set("main", [LATER], branch=None, if_missing=True).runs == (LATER,)


ACCEPTANCE = {"time": "2026-01-01T00:00:00Z", "action": "accept", "runs": ["x"], "branch": None}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("[]", "no schema_version"),
        ('{"schema_version": true}', "schema_version"),
        ('{"schema_version": 99}', "schema_version"),
        ('{"schema_version": 1, "name": "main", "changes": []}', "at changes"),
        (json.dumps({"schema_version": 1, "name": "main", "changes": [ACCEPTANCE]}), r"changes\.0"),
    ],
)
def test_a_broken_file_is_refused_and_listed(tmp_path: Path, text: str, said: str) -> None:
    """It is never taken for a baseline that is not there; nobody writes over it."""
    baselines = Baselines(tmp_path)
    baselines.set("good", [RUN], branch=None)
    file = tmp_path / "baselines" / "main.json"
    file.write_text(text)
    assert baselines.names() == ("good", "main")
    for ask in (
        lambda: baselines.get("main"),
        lambda: baselines.set("main", [RUN], branch=None),
        baselines.pinned,
    ):
        with pytest.raises(ResultsError, match=f"main.json.*{said}"):
            ask()
    assert file.read_text() == text


def test_a_stray_file_is_left_out(tmp_path: Path) -> None:
    """A copy that somebody made with a file manager breaks no other baseline."""
    Baselines(tmp_path).set("main", [RUN], branch=None)
    folder = tmp_path / "baselines"
    stray = folder / "main copy.json"
    stray.write_bytes((folder / "main.json").read_bytes())
    baselines = Baselines(tmp_path)
    assert baselines.names() == ("main",)
    assert baselines.pinned() == {RUN: ("main",)}


@pytest.mark.parametrize(
    ("name", "other", "is_typo"),
    [
        *(("mian", "main", True), ("Main", "main", True), ("trani", "train", True)),
        *(("tarin-main", "train-main", True), ("nightly_a100", "nightly-a100", True)),
        *(("main2", "main", False), ("release-1.2", "release-2.1", False)),
        *(("nightly-h100", "nightly-a100", False), ("part-b", "part-a", False)),
        *(("main-amp", "main", False), ("mian-trani", "main-train", True)),
        *(("main-cpu", "main-gpu", False), ("train", "trains", False), ("silu", "selu", False)),
        *(("relu", "gelu", False), ("encoder", "decoder", False), ("sdg", "sgd", True)),
        *(("feature-login", "feature-logic", False), ("run", "ruin", False)),
    ],
)
def test_a_likely_typo_is_told_from_another_name(
    tmp_path: Path, name: str, other: str, is_typo: bool
) -> None:
    """Another case, separators, or swapped letters; other letters and numbers are meant."""
    baselines = Baselines(tmp_path)
    baselines.set(other, [RUN], branch=None)
    assert (f"did you mean {other!r}" in baselines.typo_message(name)) == is_typo


def test_a_name_that_was_removed_is_no_typo(baselines: Baselines) -> None:
    """Somebody has used it: it is missing, and not misspelt."""
    baselines.set("main", [RUN], branch=None)
    baselines.set("mian", [RUN], branch=None)
    baselines.remove("mian")
    assert baselines.typo_message("mian") == ""


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_said(read_only_folder: Path) -> None:
    """Reading there works."""
    baselines = Baselines(read_only_folder)
    assert baselines.names() == ()
    with pytest.raises(ResultsError, match="cannot write"):
        baselines.set("main", [RUN], branch=None)


def test_a_server_owns_the_baselines_alone(tmp_path: Path) -> None:
    """No file is written, and one that was there before does not count."""
    Baselines(tmp_path).set("old", [RUN], branch=None)
    with Registry.open("", tmp_path) as registry:
        baselines = Baselines(tmp_path, registry)
        baselines.set("main", [RUN], branch=None)
        assert Baselines(tmp_path / "there", registry).names() == ("main",)
        assert Baselines(tmp_path).names() == ("old",)
        with pytest.raises(UsageProblem, match="no baseline named 'old'"):
            baselines.require("old")


def test_nothing_is_known_of_a_server_that_is_down(tmp_path: Path) -> None:
    """Neither read nor changed; a file that is here does not count."""
    Baselines(tmp_path).set("main", [RUN], branch=None)
    baselines = Baselines(tmp_path, unanswered="nobody answers")
    asks: list[Any] = [
        baselines.names,
        baselines.the_only,
        baselines.pinned,
        lambda: baselines.get("main"),
        lambda: baselines.set("main", [LATER], branch=None, if_missing=True),
        lambda: baselines.remove("main"),
    ]
    for ask in asks:
        with pytest.raises(RegistryError, match="nobody answers"):
            ask()
    assert Baselines(tmp_path).require("main").runs == (RUN,)


@DESCRIBES
def test_the_published_schema_is_that_of_the_files() -> None:
    """As ``gpubench schema baseline`` prints it."""
    published = Path(__file__).parents[3] / "docs" / "schemas" / "baseline.schema.json"
    assert json.loads(published.read_text()) == stored.json_schema(BaselineFile)
