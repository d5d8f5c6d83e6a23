"""What is known of ``--baseline`` before anything is measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.results.reader import run_of
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.session.gate.lookup import BaselineLookup
from tests.support.runs_builder import MLP, environment, measurement, write_run

if TYPE_CHECKING:
    from pathlib import Path


def early(folder: Path, baseline: str, gate: str = "auto", **more: Any) -> BaselineLookup:
    usual = {"registry": "none", "results_dir": folder, "resume": ""}
    settings = SimpleNamespace(**{**usual, "baseline": baseline, "gate": gate, **more})
    return BaselineLookup.look_up(settings, folder)  # type: ignore[arg-type] # a stand-in


def test_a_run_is_read_at_once_and_judged_by_the_threshold(tmp_path: Path) -> None:
    """By its id, the id's beginning, or its folder."""
    directory = write_run(tmp_path, 1)

    for text in (directory.run_id, directory.run_id[:13], str(directory.path)):
        found = early(tmp_path, text)
        assert found.kind == "threshold"
        assert found.early_reference is not None
        assert found.early_reference.runs[0].run_id == directory.run_id


def test_the_folders_of_the_runs_that_set_the_level_are_known(tmp_path: Path) -> None:
    """Of a run, of a file in its folder, and of a baseline with its accepted level."""
    runs = [write_run(tmp_path, n) for n in (1, 2, 3)]
    baselines = Baselines(tmp_path)
    baselines.set("main", [run.run_id for run in runs[:2]], branch=None)
    baselines.accept("main", runs[2].run_id, MLP, reason="meant")
    alone = tmp_path / "alone.json"
    alone.write_bytes(runs[0].summary.read_bytes())

    assert early(tmp_path, runs[0].run_id).directories == ((runs[0], None),)
    assert early(tmp_path, str(runs[0].summary)).directories == ((runs[0], None),)
    assert early(tmp_path, str(alone)).directories is None
    level = ((runs[0], None), (runs[1], None), (runs[2], MLP))
    assert early(tmp_path, "main").directories == level
    assert early(tmp_path, "release").directories is None


def test_a_name_is_judged_by_its_history_once_all_is_measured(tmp_path: Path) -> None:
    """--gate=threshold asks for its median instead."""
    runs = [write_run(tmp_path, n).run_id for n in (1, 2)]
    Baselines(tmp_path).set("main", runs, branch=None)

    found = early(tmp_path, "main")

    assert (found.kind, found.early_reference) == ("history", None)
    assert early(tmp_path, "main", "threshold").kind == "threshold"
    reference = found.reference(run_of("head", [measurement()], environment(), run_id="now"))
    assert [run.run_id for run in reference.runs] == runs


def test_a_name_that_is_not_there_is_missing_and_said(tmp_path: Path) -> None:
    """With the names there are."""
    Baselines(tmp_path).set("main", [write_run(tmp_path, 1).run_id], branch=None)

    found = early(tmp_path, "release")

    assert found.kind == "missing"
    assert "existing: main" in " ".join(found.notes)


def test_a_likely_typo_is_a_problem_of_usage(tmp_path: Path) -> None:
    """Before anything is measured; a name that is merely another one is not."""
    Baselines(tmp_path).set("main", [write_run(tmp_path, 1).run_id], branch=None)
    with pytest.raises(UsageProblem, match=r"--baseline=mian: .*did you mean 'main'"):
        early(tmp_path, "mian")
    assert early(tmp_path, "main2").kind == "missing"


@pytest.mark.slow
def test_a_server_is_asked_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process: for a typo, and for the folders of the runs that set the level."""
    monkeypatch.setattr("gpubench_plugin.session.gate.lookup.is_server", bool)
    url = f"sqlite:///{tmp_path / 'server.sqlite'}"
    run = write_run(tmp_path, 1)
    with Registry.open(url, tmp_path) as server:
        Baselines(tmp_path, server).set("main", [run.run_id], branch=None)

    found = early(tmp_path, "main", registry=url)
    assert (found.kind, found.directories) == ("history", ((run, None),))
    assert early(tmp_path, "other", registry=url).notes == (
        "no baseline named 'other'; existing: main",
    )
    with pytest.raises(UsageProblem, match=r"--baseline=mian: .*did you mean 'main'"):
        early(tmp_path, "mian", registry=url)


def test_a_near_miss_that_is_found_late_is_not_judged(tmp_path: Path) -> None:
    """The registry did not answer before: there are no verdicts, so no gate passes."""
    Baselines(tmp_path).set("main", [write_run(tmp_path, 1).run_id], branch=None)
    settings = SimpleNamespace(
        baseline="mian", registry="none", results_dir=tmp_path, gate="auto", resume=""
    )
    found = BaselineLookup(settings=settings, cwd=tmp_path, early_reference=None)  # type: ignore[arg-type] # a stand-in

    with pytest.raises(UsageProblem, match="did you mean 'main'"):
        found.reference(run_of("head", [measurement()], environment(), run_id="now"))


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_asked_again_later(tmp_path: Path) -> None:
    """Nothing is known of the baseline before, and nothing is refused."""
    found = early(tmp_path, "main", registry="postgresql+psycopg://nowhere/x")

    assert (found.kind, found.early_reference) == ("history", None)
    assert "did not answer; asked again after measuring" in found.notes[0]


@pytest.mark.parametrize("text", ["20190101T000000Z_run_000000", "./none.json", "broken.json"])
def test_a_run_or_file_that_cannot_be_read_is_a_problem_of_usage(tmp_path: Path, text: str) -> None:
    """It is named."""
    (tmp_path / "broken.json").write_text("{")

    with pytest.raises(UsageProblem, match=text.removeprefix("./")):
        early(tmp_path, text)


def test_a_broken_baseline_is_a_problem_of_usage(tmp_path: Path) -> None:
    """Before anything is measured."""
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "main.json").write_text("{")

    with pytest.raises(UsageProblem, match="--baseline=main"):
        early(tmp_path, "main")


def test_a_single_run_is_no_history(tmp_path: Path) -> None:
    """The message says what is."""
    with pytest.raises(UsageProblem, match="gpubench baseline set"):
        early(tmp_path, write_run(tmp_path, 1).run_id, "history")


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    """A resumed run that is its own baseline would always pass."""
    run_id = write_run(tmp_path, 1).run_id

    with pytest.raises(UsageProblem, match="this is the run being resumed"):
        early(tmp_path, run_id, resume=run_id)


def test_a_run_that_only_a_silent_registry_may_have_is_a_problem_of_usage(tmp_path: Path) -> None:
    """Before anything is measured; the message says that the registry did not answer."""
    url = "postgresql+psycopg://nobody@127.0.0.1:9/none"
    with pytest.raises(UsageProblem, match="the registry could not be searched"):
        early(tmp_path, "20190101T000000Z_run_000000", registry=url)


def test_a_baseline_of_which_no_pinned_run_can_be_read_is_not_judged_by(tmp_path: Path) -> None:
    """Nor by later runs, which nobody has vouched for; of some pinned ones a note tells."""
    runs = [write_run(tmp_path, number) for number in (1, 2)]
    later = write_run(tmp_path, 3)
    Baselines(tmp_path).set("main", [one.run_id for one in runs], branch="main")
    head = run_of("head", [measurement()], environment(), run_id="now")
    runs[0].summary.write_text("{")
    read = [one.run_id for one in early(tmp_path, "main").reference(head).runs]
    assert read == [runs[1].run_id, later.run_id]

    runs[1].summary.write_text("{")
    with pytest.raises(ResultsError, match="none of its 2 pinned runs can be read; set it again"):
        early(tmp_path, "main").reference(head)


def test_the_last_run_is_looked_up_once_all_is_measured(tmp_path: Path) -> None:
    """Also where a registry may know of others: its libraries are not loaded before."""
    directory = write_run(tmp_path, 1)
    (tmp_path / "registry.sqlite").touch()

    for gate in ("", "threshold"):
        lookup = early(tmp_path, "last", gate, registry="")
        assert (lookup.kind, lookup.early_reference, lookup.notes) == ("last", None, ())

    head = run_of(
        "head", [measurement()], environment(), run_id="now", started="2027-01-01T00:00:00Z"
    )
    reference = early(tmp_path, "last", "threshold").reference(head)
    assert [run.run_id for run in reference.runs] == [directory.run_id]


@pytest.mark.parametrize("gate", ["auto", "history"])
def test_the_last_run_gates_by_the_threshold_alone(tmp_path: Path, gate: str) -> None:
    """The message says why, and what to do."""
    with pytest.raises(UsageProblem, match=r"a single run.*baseline set.*--gate=threshold"):
        early(tmp_path, "last", gate)
