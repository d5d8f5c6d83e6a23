"""Baselines: files that are the truth, copies in the registry, every change explicit."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.baselines.model import BaselineFile
from gpubench_plugin.baselines.store import KIND, Baselines
from gpubench_plugin.core.errors import RegistryError, ResultsError, UsageProblem
from gpubench_plugin.environment import stored
from gpubench_plugin.environment.json_files import not_written
from gpubench_plugin.results.registry.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = "20260101T000000Z_run_000000"
LATER = "20260102T000000Z_run_000001"


class Clock:
    """Times that a test gives."""

    def __init__(self, *times: str):
        self._times: Iterator[str] = iter(times)

    def __call__(self) -> str:
        return next(self._times)


class Down:
    """A registry that does not respond."""

    def documents(self, kind: str) -> dict[str, str]:
        raise RegistryError("nobody answers")

    def merge_document(self, kind: str, name: str, merged: Any) -> None:
        raise RegistryError("nobody answers")


def at(day: int) -> str:
    return f"2026-01-{day:02}T00:00:00.000000Z"


def test_a_baseline_is_read_as_it_was_set(tmp_path: Path) -> None:
    """Pins stand in the order of time, each once; who reads it anew reads the same."""
    made = Baselines(tmp_path, now=Clock(at(1))).set(
        "main", [LATER, RUN, RUN], branch="main", reason="the release", overridden=["it was dirty"]
    )
    assert made.runs == (RUN, LATER)
    assert made.protected_runs == {RUN, LATER}
    again = Baselines(tmp_path)
    assert again.get("main") == made
    assert again.names() == ("main",)
    assert again.get("other") is None
    (change,) = made.changes
    assert (change.action, change.time, change.reason) == ("set", at(1), "the release")
    assert change.forced == ("it was dirty",)


def test_every_change_is_kept_with_time_and_reason(tmp_path: Path) -> None:
    """Setting it anew resets acceptances if asked to; what was done before stays in the list."""
    baselines = Baselines(tmp_path, now=Clock(*map(at, range(1, 8))))
    baselines.set("main", [RUN], branch="main")
    accepted = baselines.accept("main", LATER, "test_a.py::test", reason="meant")
    assert accepted.acceptances["test_a.py::test"].run == LATER
    assert accepted.protected_runs == {RUN, LATER}
    assert baselines.set("main", [RUN], branch=None).acceptances == accepted.acceptances
    assert baselines.set("main", [LATER], branch=None, reset_accepted=True).acceptances == {}
    baselines.remove("main", reason="over")
    assert baselines.get("main") is None
    assert baselines.names() == ()
    with pytest.raises(UsageProblem, match="none exists yet"):
        baselines.remove("main")
    found = json.loads((tmp_path / "baselines" / "main.json").read_text())
    assert [(c["action"], c["reason"]) for c in found["changes"]] == [
        ("set", ""),
        ("accept", "meant"),
        ("set", ""),
        ("set", ""),
        ("remove", "over"),
    ]
    assert baselines.set("main", [RUN], branch="main").changes[-1].time == at(7)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 81, "a b", "ä"])
def test_a_name_is_a_folder_name(tmp_path: Path, name: str) -> None:
    """Nothing is written elsewhere."""
    with pytest.raises(UsageProblem, match="allowed"):
        Baselines(tmp_path).set(name, [RUN], branch=None)
    assert not list(tmp_path.glob("**/*.json"))


@pytest.mark.parametrize("name", [RUN, "20260101", "2026", "main.json"])
def test_a_name_is_no_runs_or_files_name(tmp_path: Path, name: str) -> None:
    """``--baseline`` takes all of them."""
    with pytest.raises(UsageProblem, match="looks like a run id or a file"):
        Baselines(tmp_path).set(name, [RUN], branch=None)


def test_an_acceptance_needs_a_reason_and_a_baseline(tmp_path: Path) -> None:
    """Blanks are none."""
    baselines = Baselines(tmp_path)
    with pytest.raises(UsageProblem, match="no baseline named 'mian'"):
        baselines.accept("mian", RUN, "x", reason="y")
    baselines.set("main", [RUN], branch=None)
    with pytest.raises(UsageProblem, match="--reason"):
        baselines.accept("main", RUN, "x", reason=" \n")
    with pytest.raises(UsageProblem, match="did you mean 'main'"):
        baselines.require("mian")


def test_the_only_baseline_need_not_be_named(tmp_path: Path) -> None:
    """Of several one has to be named; whether there is one the registry may know alone."""
    baselines = Baselines(tmp_path)
    with pytest.raises(UsageProblem, match="no baseline exists yet"):
        baselines.the_only()
    with pytest.raises(RegistryError, match="cannot list the baselines: it is down"):
        Baselines(tmp_path, unanswered="it is down").the_only()
    baselines.set("a", [RUN], branch=None)
    assert baselines.the_only() == "a"
    baselines.set("b", [RUN], branch=None)
    with pytest.raises(UsageProblem, match="name one: a, b"):
        baselines.the_only()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ('{"schema_ver', "is truncated"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "no schema_version"),
        ('{"schema_version": true}', "invalid schema_version true"),
        ('{"schema_version": 99}', "upgrade pytest-gpubench"),
        ('{"schema_version": 1, "name": "main"}', "violates the schema"),
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
        with pytest.raises(ResultsError, match=said):
            ask()
    assert file.read_text() == text


def test_a_stray_file_is_left_out_and_named(tmp_path: Path) -> None:
    """A copy that somebody made with a file manager breaks no other baseline."""
    Baselines(tmp_path).set("main", [RUN], branch=None)
    folder = tmp_path / "baselines"
    stray = folder / "main copy.json"
    stray.write_bytes((folder / "main.json").read_bytes())
    baselines = Baselines(tmp_path)
    assert baselines.names() == ("main",)
    assert baselines.pinned() == {RUN: ("main",)}
    assert baselines.typo_message("brandnew") == ""
    with pytest.raises(UsageProblem, match=r"'man' .did you mean 'main'"):
        baselines.require("man")
    assert baselines.notes == [f"{stray} is ignored: 'main copy' is not a valid baseline name"]


def test_a_name_that_was_removed_is_no_slip(tmp_path: Path) -> None:
    """Somebody has used it: it is missing, and not misspelt."""
    baselines = Baselines(tmp_path)
    baselines.set("main", [RUN], branch=None)
    assert "did you mean 'main'" in baselines.typo_message("mian")
    baselines.set("mian", [RUN], branch=None)
    baselines.remove("mian")
    assert baselines.typo_message("mian") == ""
    with Registry.open("", tmp_path) as registry:
        Baselines(tmp_path, registry).names()
        (tmp_path / "baselines" / "mian.json").unlink()
        assert Baselines(tmp_path, registry).typo_message("mian") == ""


def test_who_set_what_another_machine_removed_is_told_once(tmp_path: Path) -> None:
    """By whichever command looks next; from then on the file says it without the registry, too."""
    url = f"sqlite:///{tmp_path / 'shared.sqlite'}"
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with Registry.open(url, here) as one, Registry.open(url, there) as other:
        Baselines(here, one, now=Clock(at(1))).set("main", [RUN], branch="main")
        Baselines(there, other, now=Clock(at(2))).accept("main", RUN, "test", reason="meant")
        # Both act without the registry, which then returns.
        Baselines(here, now=Clock(at(3))).set("main", [LATER], branch="main")
        Baselines(there, now=Clock(at(4))).remove("main")
        assert Baselines(here, one).exists("main")
        merging = Baselines(there, other)
        assert not merging.exists("main")
        assert f"setting it to {LATER} has no effect" in merging.notes[0]

        assert Baselines(here).exists("main")
        late = Baselines(here, one)
        late.typo_message("other")
        assert late.notes == []
        assert late.names() == ()
        late.get("main")
        (accepted, note) = late.notes
        assert f"setting it to {LATER} has no effect: meanwhile it was removed" in note
        assert "accepting test" in accepted

        assert Baselines(here).names() == ()
        again = [Baselines(here, one), Baselines(there, other)]
        assert [(baselines.names(), baselines.notes) for baselines in again] == [((), []), ((), [])]
        files = [folder / "baselines" / "main.json" for folder in (here, there)]
        assert files[0].read_text() == files[1].read_text()


def test_a_file_that_cannot_catch_up_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline is read all the same."""
    url = f"sqlite:///{tmp_path / 'shared.sqlite'}"
    with Registry.open(url, tmp_path) as registry:
        Baselines(tmp_path, registry).set("main", [RUN], branch=None)
        other = Baselines(tmp_path / "there", registry)
        other.accept("main", RUN, "test", reason="meant")

        def full(path: Path, _: str) -> None:
            raise not_written(path, OSError(ENOSPC, "No space left on device"))

        monkeypatch.setattr("gpubench_plugin.environment.json_files.write_text", full)
        baselines = Baselines(tmp_path, registry)
        assert {*baselines.require("main").acceptances} == {"test"}
        (note,) = baselines.notes
        assert "main.json does not yet contain others' changes: " in note
        assert "No space left" in note


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_said(read_only_folder: Path) -> None:
    """Reading there works."""
    baselines = Baselines(read_only_folder)
    assert baselines.names() == ()
    with pytest.raises(ResultsError, match="cannot write"):
        baselines.set("main", [RUN], branch=None)


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each of many acceptances made at the same time is kept."""
    Baselines(tmp_path).set("main", [RUN], branch=None)
    names = [f"test_{number}.py::test" for number in range(16)]

    def accept(name: str) -> None:
        Baselines(tmp_path).accept("main", LATER, name, reason="meant")

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(accept, names))
    assert set(Baselines(tmp_path).require("main").acceptances) == {*names}
    assert [path.name for path in (tmp_path / "baselines").iterdir()] == ["main.json"]


def test_machines_share_baselines_through_the_registry(tmp_path: Path) -> None:
    """The later change counts, whichever machine made it; a removal is one."""
    url = f"sqlite:///{tmp_path / 'shared.sqlite'}"
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with Registry.open(url, here) as one, Registry.open(url, there) as other:
        first = Baselines(here, one, now=Clock(at(3)))
        first.set("main", [RUN], branch="main")
        second = Baselines(there, other, now=Clock(at(2), at(9)))
        assert second.names() == ("main",)
        assert not (there / "baselines").exists()
        # The other machine's clock is behind, its change comes later all the same.
        changed = second.accept("main", LATER, "test", reason="meant")
        assert changed.changed == "2026-01-03T00:00:00.000001Z"
        assert first.require("main") == changed
        assert first.pinned() == {RUN: ("main",), LATER: ("main",)}
        second.remove("main")
        assert first.get("main") is None
        assert first.names() == ()


def test_a_registry_that_is_down_costs_only_the_sharing(tmp_path: Path) -> None:
    """The file is written, the user is told, and it is shared as soon as that is possible."""
    baselines = Baselines(tmp_path, Down())  # type: ignore[arg-type] # a stand-in
    made = baselines.set("main", [RUN], branch=None)
    assert baselines.get("main") == made
    (note,) = baselines.notes
    assert "nobody answers" in note
    with Registry.open("", tmp_path) as registry:
        assert registry.documents(KIND) == {}
        Baselines(tmp_path, registry).get("main")
        assert json.loads(registry.documents(KIND)["main"])["runs"] == [RUN]


def test_a_registry_that_goes_down_between_is_said_too(tmp_path: Path) -> None:
    """It was read, but could not be written."""

    class HalfDown(Down):
        def documents(self, kind: str) -> dict[str, str]:
            return {}

    baselines = Baselines(tmp_path, HalfDown())  # type: ignore[arg-type] # a stand-in
    baselines.set("main", [RUN], branch=None)
    assert "other machines will not see it" in baselines.notes[0]
    assert Baselines(tmp_path).names() == ("main",)


def test_a_copy_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """An older state is not taken instead."""
    Baselines(tmp_path).set("main", [RUN], branch=None)
    newer: dict[str, Any] = {"schema_version": 3, "changed": "2099-01-01T00:00:00.000000Z"}
    with Registry.open("", tmp_path) as registry:
        registry.merge_document(KIND, "main", lambda _: (json.dumps(newer), newer["changed"]))
        with pytest.raises(ResultsError, match="in the registry: schema_version 3"):
            Baselines(tmp_path, registry).get("main")


def test_the_schema_takes_what_is_written(tmp_path: Path) -> None:
    """The published schema is that of the files."""
    import jsonschema

    baselines = Baselines(tmp_path)
    baselines.set("main", [RUN], branch="main")
    baselines.accept("main", RUN, "test", reason="meant")
    document = json.loads((tmp_path / "baselines" / "main.json").read_text())
    jsonschema.validate(document, stored.json_schema(BaselineFile))


def test_the_published_schema_is_current() -> None:
    """As ``gpubench schema baseline`` prints it."""
    published = Path(__file__).parents[3] / "docs" / "schemas" / "baseline.schema.json"
    assert json.loads(published.read_text()) == stored.json_schema(BaselineFile)


def test_a_missing_baseline_is_set_and_a_standing_one_left(tmp_path: Path) -> None:
    """A removed one is missing; nothing is written where one stands."""
    baselines = Baselines(tmp_path)
    first = baselines.set("main", [RUN], branch="main", if_missing=True)
    assert baselines.set("main", [LATER], branch=None, if_missing=True) == first
    assert Baselines(tmp_path).require("main") == first
    baselines.remove("main")
    assert baselines.set("main", [LATER], branch=None, if_missing=True).runs == (LATER,)


def test_only_one_of_many_at_once_sets_a_missing_baseline(tmp_path: Path) -> None:
    """It is decided under the lock: all get the one that was first."""

    def pin(number: int) -> tuple[str, ...]:
        run = f"20260101T000000Z_run_{number:06}"
        return Baselines(tmp_path).set("main", [run], branch=None, if_missing=True).runs

    with ThreadPoolExecutor(max_workers=8) as pool:
        assert len(set(pool.map(pin, range(16)))) == 1
    assert len(Baselines(tmp_path).require("main").changes) == 1


def test_nothing_is_set_where_nobody_knows_whether_it_is_missing(tmp_path: Path) -> None:
    """A registry that is down, or breaks off, may have it; with a file here all is known."""
    for baselines in (
        Baselines(tmp_path, Down()),  # type: ignore[arg-type] # a stand-in
        Baselines(tmp_path, unanswered="nobody answers"),
    ):
        with pytest.raises(RegistryError, match="'main' exists: nobody answers"):
            baselines.set("main", [RUN], branch=None, if_missing=True)
        for ask in (baselines.require, baselines.exists, baselines.remove):
            with pytest.raises(RegistryError, match="'main' exists: nobody answers"):
                ask("main")
    assert not (tmp_path / "baselines" / "main.json").exists()
    Baselines(tmp_path).set("main", [RUN], branch=None)
    known = Baselines(tmp_path, unanswered="nobody answers")
    assert known.exists("main")
    assert known.set("main", [LATER], branch=None, if_missing=True).runs == (RUN,)
