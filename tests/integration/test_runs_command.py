"""``gpubench runs``, as a user types it."""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cli.main import main
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.registry.registry import Registry
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(run_command: Shell) -> Shell:
    """Runs ``gpubench runs``."""
    return partial(run_command, "runs")


def listed(shell: Shell, *arguments: str) -> list[dict[str, Any]]:
    code, out, _ = shell("list", "--format=json", *arguments)
    assert code == 0
    runs: list[dict[str, Any]] = json.loads(out)["runs"]
    return runs


def ids(shell: Shell, *arguments: str) -> list[int]:
    return [int(run["run_id"][-6:], 16) for run in listed(shell, *arguments)]


def test_runs_are_listed_the_latest_first(shell: Shell, results: Path) -> None:
    """Runs are selected by experiment, branch, tag, status and number."""
    write_run(results, 0)
    write_run(results, 1, status="failed", branch="feature")
    write_run(results, 2, [measurement(), measurement(RESNET, outcome="oom")], status=None)
    broken = write_run(results, 3, experiment="other")
    broken.summary.write_text("{")
    write_run(results, 4, tag="nightly", regressed=[MLP])
    living = write_run(results, 5, status=None)
    with Journal(living.journal):
        states = {run["run_id"]: run["status"] for run in listed(shell)}
        assert states == {
            run_id(5): "running",
            run_id(4, "nightly"): "complete",
            run_id(3): "broken",
            run_id(2): "interrupted",
            run_id(1): "failed",
            run_id(0): "complete",
        }
        assert [*states] == sorted(states, reverse=True)
        assert ids(shell, "--status=running") == [5]
    assert ids(shell, "--status=interrupted") == [5, 2]
    assert ids(shell, "-n", "2") == [5, 4]
    assert ids(shell, "--experiment=other") == [3]
    assert ids(shell, "--branch=feature") == [1]
    assert ids(shell, "--tag=nightly") == [4]

    code, out, _ = shell("list")
    assert code == 0
    assert max(len(line) for line in out.splitlines() if " " in line) <= 80
    assert "complete, regressed" in out
    assert "is not JSON: Expecting" in " ".join(out.split())
    assert shell("list", "--experiment=none")[1].startswith("no matching run in")


def test_names_from_files_cannot_steer_the_terminal(shell: Shell, results: Path) -> None:
    """Control characters are written as escapes, wherever they came from."""
    run = write_run(results, 0, branch="\x1b[31mred", commit="\x07bell")
    for arguments in (("list",), ("show", run.run_id)):
        _, out, _ = shell(*arguments)
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "\\x1b[31m" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "--status=fine"), "--status: unknown 'fine' (did you mean 'failed'?)"),
        (("list", "--format=html"), "--format: unknown 'html'"),
        (("list", "--last=-1"), "--last: '-1' is not a non-negative integer"),
        (("show", "2027"), "no run in"),
        (("tag", "2026", "a/b"), "tag: 'a/b'"),
        (("prune",), "--keep-last, --older-than or both"),
        (("prune", "--keep-last=-1"), "--keep-last: '-1'"),
        (("prune", "--older-than=nan"), "--older-than: nan"),
    ],
)
def test_bad_input_is_said(
    shell: Shell, results: Path, arguments: tuple[str, ...], message: str
) -> None:
    """A usage error is one message, with exit code 2."""
    write_run(results, 0)
    code, _, err = shell(*arguments)
    assert code == 2
    assert message in err


def test_a_run_is_shown_in_full(shell: Shell, run_command: Shell, results: Path) -> None:
    """Status, outcomes, verdicts, environment, tags; of a broken run what is readable."""
    failed = measurement(RESNET, outcome="oom")
    run = write_run(results, 0, [measurement(), failed], status="failed", regressed=[MLP])
    assert shell("tag", run.run_id, "good")[0] == 0
    code, out, _ = shell("show", run.run_id)
    assert code == 0
    for message in (
        "failed, regressed",
        "1 measured, 1 oom",
        "1 regressed",
        "good",
        "cpu.model: A processor",
        "pytest benchmarks -k mlp",
    ):
        assert message in out
    code, out, _ = shell("show", run.run_id, "--format=json")
    assert json.loads(out)["outcomes"] == {"measured": 1, "oom": 1}
    run.summary.write_text('{"schema_')
    for words in (("runs", "show"), ("runs", "artifacts"), ("watch", "--once")):
        code, out, err = run_command(*words, run.run_id)
        assert (code, err.count("\n"), "summary.json is not JSON" in err) == (4, 1, True)
        assert out
    run.system.write_text('{"schema_version": 7}')
    assert "system.json: schema_version 7" in shell("show", run.run_id)[2]


def test_a_killed_run_says_where_it_was(shell: Shell, results: Path) -> None:
    """The benchmark of the last phase that has no result, as ``gpubench watch`` says it."""
    run = write_run(results, 0, [measurement(), measurement(RESNET, outcome="oom")], status=None)
    with Journal(run.journal) as journal:
        for phase in ("build", "warm-up"):
            journal.append({"event": "phase", "phase": phase, "benchmark": RESNET})
    _, out, _ = shell("show", run.run_id)
    assert f"stopped in {RESNET}, phase warm-up" in " ".join(out.split())
    _, out, _ = shell("show", run.run_id, "--format=json")
    assert json.loads(out)["current"] == f"{RESNET}, phase warm-up"
    ended = write_run(results, 1)
    _, out, _ = shell("show", ended.run_id)
    assert "stopped in" not in out


def test_tags_are_in_the_folder_and_in_the_registry(shell: Shell, results: Path) -> None:
    """Nothing is tagged while the registry is down; without one, the folder alone is."""
    run = write_run(results, 0)
    with Registry.open("", results) as registry:
        registry.ingest(run)
        assert shell("tag", run.run_id, "nightly", "good") == (
            0,
            f"{run.run_id}: tags good, nightly\n",
            "",
        )
        assert registry.runs()[0].tags == ("good", "nightly")
        assert shell("tag", run.run_id, "good", "nightly", "--remove")[1].endswith("tags none\n")
        assert registry.runs()[0].tags == ()
    assert shell("tag", run.run_id, "a", "--registry=postgresql://x@127.0.0.1:9/none")[0] == 4
    assert "in the folder alone" in shell("tag", run.run_id, "b", "--registry=none")[2]
    assert ": tagged b\n" in shell("prune", "--keep-last=0", "--runs")[1]
    assert [listed(shell, *o)[0]["tags"] for o in ((), ("--registry=none",))] == [[], ["b"]]


def test_artifacts_are_files_with_hashes(shell: Shell, results: Path) -> None:
    """In the table and as JSON."""
    run = write_run(results, 0)
    _, out, _ = shell("artifacts", run.run_id, "--format=json")
    files = {entry["name"]: entry for entry in json.loads(out)["artifacts"]}
    expected = sha256(run.summary.read_bytes()).hexdigest()
    assert files["summary.json"]["sha256"] == expected
    assert files["summary.json"]["bytes"] == run.summary.stat().st_size
    _, out, err = shell("artifacts", run.run_id)
    assert (expected in out, err) == (True, "")


def test_pruning_takes_traces_first_and_never_summaries(shell: Shell, results: Path) -> None:
    """The output has the folders and bytes removed; a dry run changes nothing."""
    runs = [write_run(results, number) for number in range(3)]
    for run in runs:
        for name in ("traces", "checkpoints", "ranks"):
            (run.path / name).mkdir()
            (run.path / name / "data").write_bytes(b"x" * 1000)
    code, out, _ = shell("prune", "--keep-last=1", "--dry-run")
    assert code == 0
    assert out.endswith("would remove 4 folders, 3.906 KiB (4000 bytes)\n")
    assert all((run.path / "traces").exists() for run in runs)

    assert shell("prune", "--keep-last=1")[1].startswith("removed ")
    remaining = [sorted(p.name for p in run.path.iterdir() if p.is_dir()) for run in runs]
    assert remaining == [["ranks"], ["ranks"], ["checkpoints", "ranks", "traces"]]
    assert shell("prune", "--keep-last=1", "--samples")[0] == 0
    assert not (runs[0].path / "ranks").exists()
    assert all(run.summary.exists() and run.journal.exists() for run in runs)
    assert "removed 0 folders" in shell("prune", "--older-than=0", "--keep-last=9")[1]


def test_whole_runs_go_but_for_those_that_are_needed(shell: Shell, results: Path) -> None:
    """Pinned, accepted, tagged and unfinished runs and samples of a baseline are kept."""
    runs = [write_run(results, n, {MLP: 0.01}, branch="old") for n in range(4)]
    runs += [write_run(results, n, {MLP: 0.01}) for n in range(4, 30)]
    with Registry.open("", results) as registry:
        for run in runs:
            registry.ingest(run)
    assert main(("baseline", "set", "main", run_id(4))) == 0
    assert main(("accept", run_id(1), "mlp", "--reason=r", "--baseline=main")) == 0
    assert shell("tag", run_id(2), "keep")[0] == 0
    with Journal(runs[25].journal):
        code, out, _ = shell("prune", "--keep-last=1", "--runs", "--dry-run")
        assert code == 0
        before = ids(shell, "--last=0")
        code, out, _ = shell("prune", "--keep-last=1", "--runs")
    assert code == 0
    assert before == list(range(29, -1, -1))
    for message in ("used by baseline main", ": tagged keep\n", "the run is still being written"):
        assert message in out
    # Accepted at run 1: its samples are that one and the first 20 of main, of which 4 is pinned.
    pruned = {0, 3, *range(24, 29)} - {25}
    assert set(ids(shell, "--last=0")) == set(range(30)) - pruned
    with Registry.open("", results) as registry:
        assert {row.run_id for row in registry.runs()} == {run.run_id for run in runs} - {
            run_id(number) for number in pruned
        }


def test_nothing_whole_goes_where_it_is_not_known_what_is_pinned(
    shell: Shell, results: Path
) -> None:
    """A broken baseline, broken tags, foreign files: runs are kept."""
    run = write_run(results, 0)
    (run.path / "tags.json").write_text("{")
    code, out, _ = shell("prune", "--keep-last=0", "--runs", "--registry=none")
    assert (code, run.path.exists()) == (4, True)
    (run.path / "tags.json").unlink()
    (results / "baselines").mkdir()
    (results / "baselines" / "main.json").write_text("{")
    code, _, err = shell("prune", "--keep-last=0", "--runs", "--registry=none")
    assert code == 4
    assert "main.json is not JSON" in err
    assert run.summary.exists()
    (results / "baselines" / "main.json").unlink()
    (run.path / "notes.md").write_text("mine")
    code, out, _ = shell("prune", "--keep-last=0", "--runs", "--registry=none")
    assert "contains files not written by gpubench: notes.md" in out
    (run.path / "notes.md").unlink()
    assert shell("prune", "--keep-last=0", "--runs", "--registry=none")[0] == 0
    assert not run.path.exists()
