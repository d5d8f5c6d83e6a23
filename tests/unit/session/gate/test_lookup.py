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
from tests.support.messages import mentions
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


def test_a_name_that_is_not_there_is_missing_or_a_likely_typo(tmp_path: Path) -> None:
    """Said with the names there are; a typo is a problem of usage, before anything is measured."""
    Baselines(tmp_path).set("main", [write_run(tmp_path, 1).run_id], branch=None)
    for name in ("release", "main2"):
        found = early(tmp_path, name)
        assert found.kind == "missing"
        assert "existing: main" in " ".join(found.notes)
    with pytest.raises(UsageProblem, match=r"--baseline=mian: .*did you mean 'main'"):
        early(tmp_path, "mian")


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
    notes = early(tmp_path, "other", registry=url).notes
    assert mentions(*notes, "'other'; existing: main")
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


@pytest.mark.parametrize(
    ("baseline", "options", "said"),
    [
        ("20190101T000000Z_run_000000", {}, "20190101T000000Z_run_000000"),
        ("./none.json", {}, "none.json"),
        ("broken.json", {}, "broken.json"),
        ("main", {}, "--baseline=main"),  # which is broken
        ("RUN", {"gate": "history"}, "gpubench baseline set"),
        ("RUN", {"resume": "RUN"}, "this is the run being resumed"),
        (
            "20190101T000000Z_run_000000",
            {"registry": "postgresql+psycopg://nobody@127.0.0.1:9/none"},
            "the registry could not be searched",
        ),
        ("last", {"gate": "auto"}, r"a single run.*baseline set.*--gate=threshold"),
        ("last", {"gate": "history"}, r"a single run.*baseline set.*--gate=threshold"),
    ],
)
def test_what_cannot_be_judged_by_is_a_problem_of_usage(
    tmp_path: Path, baseline: str, options: dict[str, str], said: str
) -> None:
    """Before anything is measured, by its name; a single run is no history, nor its own base."""
    run_id = write_run(tmp_path, 1).run_id
    (tmp_path / "baselines").mkdir()
    for broken in ("broken.json", "baselines/main.json"):
        (tmp_path / broken).write_text("{")
    given = {key: value.replace("RUN", run_id) for key, value in options.items()}
    with pytest.raises(UsageProblem, match=said):
        early(tmp_path, baseline.replace("RUN", run_id), **given)


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
