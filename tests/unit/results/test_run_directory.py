"""Run directories: ids, creation, names of the latest ones, and tags."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.results.run_directory import (
    RunDirectory,
    change_tags,
    find_run,
    new_run_id,
    path_component,
    runs_in,
    tags_of,
)
from tests.support.runs_builder import run_id, write_run

RUN = "20260131T120000Z_run_0a1b2c"


def test_folder_is_made_empty_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark may change the folder, and the results may stand behind a symbolic link."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "scratch")
    monkeypatch.chdir(tmp_path)
    run = RunDirectory.create(Path("results"), "resnet", RUN)
    assert run.path == tmp_path / "scratch" / "resnet" / RUN
    assert list(run.path.iterdir()) == []


@pytest.mark.parametrize("experiment", ["../up", "/root", ".", ""])
def test_experiment_stays_below_the_results(tmp_path: Path, experiment: str) -> None:
    """An experiment that would lead out of the results folder is refused."""
    with pytest.raises(UsageProblem, match="--experiment"):
        RunDirectory.create(tmp_path / "results", experiment, RUN)
    assert list(tmp_path.iterdir()) == []


def test_file_in_the_way_is_named(tmp_path: Path) -> None:
    """Where a parent is a file, the message names folder and option."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageProblem, match=r"--results-dir: .*/file/results: .*Not a directory"):
        RunDirectory.create(tmp_path / "file" / "results", "resnet", RUN)


def test_results_ignore_themselves_in_git(tmp_path: Path) -> None:
    """As pytest's cache does; a folder that was there is the user's."""
    RunDirectory.create(tmp_path / "results", "resnet", RUN)
    assert (tmp_path / "results/.gitignore").read_text() == "*\n"
    (tmp_path / "kept").mkdir()
    RunDirectory.create(tmp_path / "kept", "resnet", RUN)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["resnet"]


def test_run_that_exists_is_refused(tmp_path: Path) -> None:
    """An earlier run is never written into."""
    earlier = RunDirectory.create(tmp_path, "resnet", RUN)
    earlier.summary.write_text("earlier")
    with pytest.raises(UsageProblem, match=f"{RUN}: File exists"):
        RunDirectory.create(tmp_path, "resnet", RUN)
    assert earlier.summary.read_text() == "earlier"


def test_earlier_run_is_opened(tmp_path: Path) -> None:
    """A folder with a journal is a run, with its id and experiment; a link to it is followed."""
    earlier = RunDirectory.create(tmp_path, "resnet", RUN)
    earlier.journal.touch()
    (tmp_path / "link").symlink_to(earlier.path)
    run = RunDirectory.open(tmp_path / "link")
    assert (run, run.run_id, run.experiment) == (earlier, RUN, "resnet")


def test_latest_runs_have_names(tmp_path: Path) -> None:
    """``last`` and those before it, of all experiments; the message counts what there is."""
    for number, experiment in enumerate(("one", "two", "one")):
        write_run(tmp_path, number, experiment=experiment)

    names = "last", "last~1", "last~2"
    run_ids = [find_run(tmp_path, name, cwd=tmp_path).run_id for name in names]

    assert run_ids == [run_id(2), run_id(1), run_id(0)]
    with pytest.raises(UsageProblem, match=r"last~3: .* has 3 runs"):
        find_run(tmp_path, "last~3", cwd=tmp_path)
    for wrong in ("last~", "last~-1", "last~x", "last~٣"):
        with pytest.raises(UsageProblem, match=f"^{wrong}: not a run; allowed: last, last~1"):
            find_run(tmp_path, wrong, cwd=tmp_path)


def test_a_renamed_run_is_as_old_as_its_journal(tmp_path: Path) -> None:
    """Whatever its name sorts like, it is not the latest once another has been started."""
    kept = write_run(tmp_path, 0).path.rename(tmp_path / "default" / "before_the_change")
    os.utime(kept / "metrics.jsonl", (0, 0))
    write_run(tmp_path, 1)

    assert [run.run_id for run in runs_in(tmp_path)] == ["before_the_change", run_id(1)]


def test_runs_of_one_second_are_in_the_order_of_their_start(tmp_path: Path) -> None:
    """By the time of the file that is written first: the rest of an id is random."""
    for name, written_ns in (("b", 1), ("a", 2)):
        run = RunDirectory.create(tmp_path, "one", f"20260131T120000Z_run_{name * 6}")
        run.journal.touch()
        run.system.touch()
        os.utime(run.system, ns=(written_ns, written_ns))

    assert find_run(tmp_path, "last", cwd=tmp_path).run_id.endswith("aaaaaa")
    assert find_run(tmp_path, "last~1", cwd=tmp_path).run_id.endswith("bbbbbb")


NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def test_run_id_has_the_start_in_utc_a_tag_and_random_digits() -> None:
    """Without a tag it says ``run``; two of one second differ."""
    assert new_run_id("nightly", NOON).startswith("20260131T120000Z_nightly_")
    local_time = NOON.astimezone(timezone(timedelta(hours=9)))
    assert re.fullmatch(r"20260131T120000Z_run_[0-9a-f]{6}", new_run_id(None, local_time))
    assert new_run_id(None, NOON) != new_run_id(None, NOON)


@pytest.mark.parametrize(
    "tag", ["../evil", "a/b", "..", ".hidden", "-x", "two words", "a\x00b", "ü", "x" * 81]
)
def test_unsafe_tag_is_refused(tag: str) -> None:
    """A tag that is no plain name of a folder is refused by name, and the nearest proposed."""
    with pytest.raises(UsageProblem) as refused:
        new_run_id(tag, NOON)
    assert str(refused.value).startswith(f"--tag: {tag!r} is not a valid folder name")
    with pytest.raises(UsageProblem, match="did you mean 'my-first-try'"):
        path_component("--experiment", "my first/try")


def test_tags_are_added_and_taken(tmp_path: Path) -> None:
    """They are sorted, each is there once, and what is no safe word changes nothing."""
    run = write_run(tmp_path, 0)
    assert tags_of(run) == ()
    assert change_tags(run, add=["nightly", "good"]) == ("good", "nightly")
    assert change_tags(run, add=["good"], remove=["nightly", "unknown"]) == ("good",)
    with pytest.raises(UsageProblem, match="tag: 'a b'"):
        change_tags(run, add=["fine", "a b"])
    assert tags_of(run) == ("good",)


def test_those_who_tag_at_once_lose_nothing(tmp_path: Path) -> None:
    """Every tag is there."""
    run = write_run(tmp_path, 0)
    words = [f"tag{number}" for number in range(16)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda word: change_tags(run, add=[word]), words))
    assert set(tags_of(run)) == {*words}
