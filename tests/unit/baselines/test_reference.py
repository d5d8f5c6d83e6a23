"""What ``--baseline`` names: one run, a baseline's samples, or nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.baselines.model import Reference
from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.core.errors import RegistryError, UsageProblem
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import RunDirectory
from tests.support.messages import mentions
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path

DOWN = "postgresql+psycopg://nobody:hunter2@127.0.0.1:9/none"
BOTH = {MLP: 0.010, RESNET: 0.020}


def look_up(results: Path, text: str = "main", *, url: str = "none", **more: Any) -> Reference:
    with Resolver(url, results, results) as resolver:
        return resolver.reference(text, **{"benchmarks": (MLP, RESNET), **more})


def numbers(found: Reference, benchmark: str = MLP) -> list[int]:
    """The numbers of the runs that are samples of a benchmark."""
    return [int(run.run_id[-6:], 16) for run in found.runs if benchmark in run.results]


def levels(found: Reference, benchmark: str) -> list[int]:
    """The numbers of the runs that are the level of a benchmark."""
    return [n for n in numbers(found, benchmark) if _is_level(found, n, benchmark)]


def _is_level(found: Reference, number: int, benchmark: str) -> bool:
    (run,) = (run for run in found.runs if run.run_id == run_id(number))
    return run.results[benchmark].pinned


@pytest.fixture(params=["registry", "folders"])
def url(request: pytest.FixtureRequest) -> str:
    """Every rule holds with a registry and without one."""
    return "" if request.param == "registry" else "none"


def store(results: Path, url: str) -> None:
    if url != "none":
        with Registry.open(url, results) as registry:
            for journal in results.glob("*/*/metrics.jsonl"):
                registry.ingest(RunDirectory(path=journal.parent))


@pytest.mark.slow
def test_a_baseline_has_its_pins_and_the_fit_later_runs(tmp_path: Path, url: str) -> None:
    """Not sampled: earlier ones, other branches, failed, killed, dirty or regressed runs."""
    for number in range(3):
        write_run(tmp_path, number, BOTH)
    write_run(tmp_path, 3, BOTH, branch="feature")
    write_run(tmp_path, 4, BOTH, status="failed")
    write_run(tmp_path, 5, BOTH, status=None)
    write_run(tmp_path, 6, BOTH, dirty=True)
    write_run(tmp_path, 7, BOTH, regressed=[RESNET])
    write_run(tmp_path, 8, BOTH)
    write_run(tmp_path, 9, {RESNET: 0.020})
    store(tmp_path, url)
    Baselines(tmp_path).set("main", [run_id(1)], branch="main")

    found = look_up(tmp_path, url=url)
    assert (found.kind, found.label, found.pinned) == ("history", "main", (run_id(1),))
    assert numbers(found) == [1, 2, 8]
    assert numbers(found, RESNET) == [1, 2, 8, 9]
    assert found.notes == ()


@pytest.mark.parametrize("pins", [0, 1])
def test_what_the_latest_run_of_the_branch_measured_is_kept(tmp_path: Path, pins: int) -> None:
    """So that a gate sees what is lost though no pin has it; not what was lost before."""
    write_run(tmp_path, 0, {MLP: 0.010})
    write_run(tmp_path, 1, {**BOTH, "t.py::test_old": 0.010})
    write_run(tmp_path, 2, BOTH)
    write_run(tmp_path, 3, {"t.py::test_dirty": 0.010}, dirty=True)
    other = {"cpu": {"model": "Another processor", "usable_cores": 2}}
    write_run(tmp_path, 4, {"t.py::test_other": 0.010}, facts=other)
    Baselines(tmp_path).set("main", [run_id(0)][:pins], branch="main")
    head = RunReader(write_run(tmp_path, 5, {MLP: 0.010})).run()

    found = look_up(tmp_path, head=head, benchmarks=(MLP,))
    assert [(run.run_id, *run.results) for run in found.runs] == [
        (run_id(0), MLP),
        (run_id(1), MLP),
        (run_id(2), RESNET, MLP),
    ]


@pytest.mark.slow
def test_the_window_is_the_first_twenty_from_the_pin_on(tmp_path: Path, url: str) -> None:
    """It does not slide, and is counted for each machine and each benchmark's settings alone."""
    other = {"cpu": {"model": "Another processor", "usable_cores": 2}}
    for number in range(60):
        tuned = measurement(MLP, settings={"data.batch_size": 16} if number % 3 == 0 else {})
        write_run(tmp_path, number, [tuned], facts=other if number % 2 else {})
    store(tmp_path, url)
    Baselines(tmp_path).set("main", [run_id(0)], branch="main")
    head = RunReader(write_run(tmp_path, 60, {MLP: 0.010})).run()

    alike = [n for n in range(1, 60) if n % 2 == 0 and n % 3 != 0][:20]
    found = numbers(look_up(tmp_path, url=url, head=head))
    assert [n for n in found if n % 2 == 0 and n % 3 != 0] == alike[: len(found)]
    assert len([n for n in found if n in alike]) == 20

    of_all = look_up(tmp_path, url=url)
    assert len([n for n in numbers(of_all) if n % 2 == 1 and n % 3 == 0]) == 10


@pytest.mark.slow
def test_runs_of_all_launchers_are_one_history(tmp_path: Path, url: str) -> None:
    """What counts are the threads of the ranks, not those of the process that recorded them."""
    for number in range(34):
        machine = {"torch.threads": 2 if number % 3 == 2 else 1}
        threads = 2 if number % 3 == 0 else 1
        facts = {"torch": {"version": "2.13.0", "threads": threads}}
        write_run(tmp_path, number, [measurement(machine=machine)], facts=facts)
    store(tmp_path, url)
    Baselines(tmp_path).set("main", [run_id(0)], branch="main")
    head = RunReader(write_run(tmp_path, 34, [measurement(machine={"torch.threads": 1})])).run()

    alike = [number for number in range(1, 34) if number % 3 != 2][:20]
    found = look_up(tmp_path, url=url, head=head)
    assert [number for number in numbers(found) if number % 3 != 2] == [0, *alike]


def test_an_accepted_benchmark_is_sampled_from_its_new_anchor_on(tmp_path: Path, url: str) -> None:
    """Although that run regressed; the other benchmarks of that run are no samples."""
    for number in range(6):
        write_run(tmp_path, number, BOTH, regressed=[MLP] if number in {3, 4} else ())
    store(tmp_path, url)
    baselines = Baselines(tmp_path)
    baselines.set("main", [run_id(0)], branch="main")
    baselines.accept("main", run_id(3), MLP, reason="a better loss")

    found = look_up(tmp_path, url=url)
    assert numbers(found) == [3, 5]
    assert numbers(found, RESNET) == [0, 1, 2, 5]


def test_an_anchor_that_is_a_fit_run_gives_all_its_results(tmp_path: Path, url: str) -> None:
    """Of one run, one benchmark may be an anchor and another an ordinary sample, once each."""
    for number in range(4):
        write_run(tmp_path, number, BOTH)
    store(tmp_path, url)
    baselines = Baselines(tmp_path)
    baselines.set("main", [run_id(0)], branch="main")
    baselines.accept("main", run_id(2), MLP, reason="a better loss")
    found = look_up(tmp_path, url=url)
    assert numbers(found) == [2, 3]
    assert numbers(found, RESNET) == [0, 1, 2, 3]
    assert len(found.runs) == 4


def test_the_level_is_that_of_the_pinned_runs_or_of_the_accepted_one_alone(
    tmp_path: Path, url: str
) -> None:
    """Runs between pinned ones are samples of a benchmark whose level was accepted before them."""
    for number in range(8):
        write_run(tmp_path, number, BOTH)
    store(tmp_path, url)
    baselines = Baselines(tmp_path)
    baselines.set("main", [run_id(n) for n in (1, 3, 5)], branch="main")
    baselines.accept("main", run_id(3), MLP, reason="a better loss")

    found = look_up(tmp_path, url=url)
    assert levels(found, MLP) == [3]
    assert levels(found, RESNET) == [1, 3, 5]
    assert numbers(found) == [3, 4, 5, 6, 7]
    assert numbers(found, RESNET) == [1, 3, 5, 6, 7]


def test_the_run_to_be_judged_is_never_a_sample(tmp_path: Path, url: str) -> None:
    """Neither as one of the branch nor as a pinned one, which is said."""
    runs = [RunReader(write_run(tmp_path, number, BOTH)).run() for number in range(3)]
    store(tmp_path, url)
    Baselines(tmp_path).set("main", [run_id(0)], branch="main")
    assert numbers(look_up(tmp_path, url=url, head=runs[1])) == [0, 2]
    pinned = look_up(tmp_path, url=url, head=runs[0])
    assert numbers(pinned) == [1, 2]
    assert "the run being judged" in pinned.notes[0]


def test_without_a_branch_only_the_pins_count(tmp_path: Path, url: str) -> None:
    """A baseline of a release for example."""
    for number in range(4):
        write_run(tmp_path, number, BOTH)
    store(tmp_path, url)
    Baselines(tmp_path).set("v1", [run_id(1), run_id(2)], branch=None)
    assert numbers(look_up(tmp_path, "v1", url=url)) == [1, 2]


def test_a_pinned_run_that_is_gone_is_said_by_name(tmp_path: Path) -> None:
    """Where the registry still has it, nothing is lost."""
    directory = write_run(tmp_path, 0, BOTH)
    with Registry.open("", tmp_path) as registry:
        registry.ingest(directory)
    Baselines(tmp_path).set("main", [run_id(0)], branch="main")
    directory.journal.unlink()
    assert numbers(look_up(tmp_path, url="")) == [0]
    found = look_up(tmp_path)
    assert found.runs == ()
    assert run_id(0) in found.notes[0]
    assert "gone" in found.notes[0]


def test_a_registry_that_is_down_is_said_and_the_folders_are_used(tmp_path: Path) -> None:
    """Nothing that is on this machine is lost."""
    for number in range(3):
        write_run(tmp_path, number, BOTH)
    (tmp_path / "default" / run_id(2) / "summary.json").write_text('{"torn')
    Baselines(tmp_path).set("main", [run_id(0)], branch="main")
    (tmp_path / "registry.sqlite").write_text("no database")
    found = look_up(tmp_path, url="")
    assert numbers(found) == [0, 1]
    assert any("registry unavailable, only runs in" in note for note in found.notes)
    assert any(run_id(2) in note for note in found.notes)


def test_a_run_or_a_file_is_a_single_reference(tmp_path: Path) -> None:
    """By its folder, its id, the id's beginning, a file, or from the registry alone."""
    directory = write_run(tmp_path, 0, BOTH)
    with Registry.open("", tmp_path) as registry:
        registry.ingest(directory)
    for text in (str(directory.path), run_id(0), run_id(0)[:13], f"default/{run_id(0)}"):
        found = look_up(tmp_path, text, url="")
        assert (found.kind, found.label, len(found.runs)) == ("single", text, 1)
    (tmp_path / "main.json").write_bytes(directory.summary.read_bytes())
    assert look_up(tmp_path, "main.json").kind == "single"
    directory.journal.unlink()
    for text in (run_id(0), run_id(0)[:13]):
        assert look_up(tmp_path, text, url="").run.run_id == run_id(0)
    for number in (1, 2):
        write_run(tmp_path, number, BOTH)
    with pytest.raises(UsageProblem, match="2 runs start with '2026'"):
        look_up(tmp_path, "2026", url="")


def test_a_file_is_not_pinned(tmp_path: Path) -> None:
    """The message says what it is good for."""
    (tmp_path / "x.json").touch()
    with pytest.raises(UsageProblem, match=r"^x\.json: a file, not a run; .* --baseline=x\.json$"):
        Resolver("none", tmp_path, tmp_path).candidate("x.json")


def test_a_single_reference_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """So is the very run that is to be judged."""
    run = RunReader(write_run(tmp_path, 0, BOTH)).run()
    for text in ("gone/run", "gone.json", "20990101T000000Z"):
        with pytest.raises(UsageProblem):
            look_up(tmp_path, text)
    with pytest.raises(UsageProblem, match="the run being judged"):
        look_up(tmp_path, run.run_id, head=run)
    assert look_up(tmp_path, run.run_id, head=replace(run, run_id="x")).kind == "single"


def test_an_unknown_name_is_missing_and_the_note_names_the_nearest(tmp_path: Path) -> None:
    """It is no error: what becomes of a missing baseline is asked of the user elsewhere."""
    assert look_up(tmp_path, "mian").notes == ("no baseline named 'mian'; none exists yet",)
    write_run(tmp_path, 0, BOTH)
    Baselines(tmp_path).set("main", [run_id(0)], branch="main")
    found = look_up(tmp_path, "mian")
    assert (found.kind, found.runs) == ("missing", ())
    assert mentions(*found.notes, "'mian' (did you mean 'main'?)", "existing: main")


def test_a_pinned_run_tells_of_benchmarks_that_nobody_asked_for(tmp_path: Path) -> None:
    """That one is gone from the suite can be told; of one that failed it is told that it did."""
    failed = measurement(RESNET, outcome="failed")
    write_run(tmp_path, 0, [measurement(MLP), failed])
    Baselines(tmp_path).set("main", [run_id(0)], branch="main")
    (run,) = look_up(tmp_path, benchmarks=(MLP,)).runs
    assert {i: r.outcome for i, r in run.results.items()} == {MLP: "measured", RESNET: "failed"}


def test_all_samples_of_a_baseline_are_known_as_what_it_rests_on(tmp_path: Path, url: str) -> None:
    """Pinned, accepted and later ones, of every machine."""
    for number in range(25):
        write_run(tmp_path, number, BOTH)
    store(tmp_path, url)
    Baselines(tmp_path).set("main", [run_id(2)], branch="main")
    baselines = Baselines(tmp_path)
    known = [baselines.require("main")]
    with Resolver(url, tmp_path, tmp_path) as resolver:
        found = resolver.rested_on(known)
    assert found == {run_id(number): "main" for number in range(2, 23)}


def test_a_name_that_a_silent_server_may_know_is_not_called_unknown(tmp_path: Path) -> None:
    """Nobody knows whether there is such a baseline; that is said instead, with the reason."""
    Baselines(tmp_path).set("main", [run_id(0)], branch=None)
    found = look_up(tmp_path, url=DOWN)
    assert (found.kind, found.notes) == ("missing", (found.registry_error,))
    assert "127.0.0.1:9" in found.registry_error
    assert "hunter2" not in found.registry_error


def test_a_run_that_a_silent_registry_may_have_is_no_bad_usage(tmp_path: Path) -> None:
    """Neither one that is named nor one that a baseline pins is said to be gone."""
    with pytest.raises(RegistryError, match="the registry could not be searched"):
        look_up(tmp_path, run_id(0), url=DOWN)
    Baselines(tmp_path).set("main", [run_id(0)], branch=None)
    (tmp_path / "registry.sqlite").write_text("no database")
    found = look_up(tmp_path, url="")
    assert found.registry_error
    assert "missing" not in found.notes[0]
    assert "the registry could not be searched" in found.notes[0]


def test_a_pin_of_another_version_costs_the_others_nothing(tmp_path: Path) -> None:
    """It is no sample, and its reason is told."""
    for number in range(2):
        write_run(tmp_path, number, BOTH)
    store(tmp_path, "")
    Baselines(tmp_path).set("main", [run_id(0), run_id(1)], branch=None)
    with Registry.open("", tmp_path) as registry:
        text = registry.document("run", run_id(0))
        newer = str(text).replace(
            '"summary": {"schema_version": ', '"summary": {"schema_version": 9'
        )
        assert registry.swap_document("run", run_id(0), text, newer)
    shutil.rmtree(next(tmp_path.glob(f"*/{run_id(0)}")))
    found = look_up(tmp_path, url="")
    assert numbers(found) == [1]
    assert "schema_version 9" in found.notes[0]


def test_a_folder_without_a_slash_is_no_missing_baseline(tmp_path: Path) -> None:
    """Else a gate would pass with nothing judged; a folder that holds no run is none."""
    write_run(tmp_path, 0, BOTH).path.rename(tmp_path / "good")
    (tmp_path / "main").mkdir()
    (tmp_path / "dev").touch()
    assert "write ./good" in look_up(tmp_path, "good").typo_hint
    assert [look_up(tmp_path, name).typo_hint for name in ("main", "dev")] == ["", ""]


def test_a_name_has_no_run_while_the_server_is_silent(tmp_path: Path) -> None:
    """A command that needs it fails for the registry's sake, not for the user's."""
    with pytest.raises(RegistryError, match="baselines cannot be read"):
        Resolver(DOWN, tmp_path, tmp_path).run("main")
    with pytest.raises(UsageProblem, match="no baseline named 'main'"):
        Resolver("none", tmp_path, tmp_path).run("main")
