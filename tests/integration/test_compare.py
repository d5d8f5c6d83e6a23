"""``gpubench compare`` from its command line to its exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.cli.commands.base import ExitCode
from gpubench_plugin.cli.main import main
from gpubench_plugin.results.registry.registry import Registry
from tests.support.messages import mentions
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Compare = Callable[..., "Output"]


class Output:
    """Output and exit code of a command."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=pytest.fail)

    @property
    def verdicts(self) -> dict[tuple[str, str], str]:
        """By benchmark and metric."""
        return {(b["id"], b["metric"]): b["verdict"] for b in self.json["benchmarks"]}


@pytest.fixture
def compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Compare:
    """``gpubench compare`` in the folder of the test; it must end without a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("GPUBENCH_REGISTRY", raising=False)

    def run(*arguments: str) -> Output:
        capsys.readouterr()
        code = main(["compare", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert err.count("\n") == (1 if err else 0)
        return Output(code, out, err)

    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs: the second 10% slower in one benchmark, the third as the first."""
    results = tmp_path / "results"
    write_run(results, 0, {MLP: 0.010, RESNET: 0.020})
    write_run(results, 1, {MLP: 0.011, RESNET: 0.020})
    write_run(results, 2, {MLP: 0.010, RESNET: 0.020})
    return results


A, B, C = (run_id(number) for number in range(3))


@pytest.mark.usefixtures("runs")
def test_regression_is_exit_code_1(compare: Compare) -> None:
    """Beyond the limit, and said to be a threshold; runs without a difference exit with 0."""
    assert compare(A, C).code == ExitCode.OK
    output = compare(A, B)
    assert output.code == ExitCode.REGRESSION
    assert "+10.0%" in output.out
    assert "threshold, not statistical" in output.out
    assert "1 regressed · " in output.out


@pytest.mark.usefixtures("runs")
def test_sides_may_be_given_launch_by_launch(compare: Compare) -> None:
    """Each --base and --head adds to those before."""
    output = compare(
        "--paired", "--base", A, "--head", C, "--base", B, "--head", A, "--format=json"
    )
    assert output.json["base_label"] == f"2 runs, {A} to {B}"
    assert {b["head_label"] for b in output.json["benchmarks"]} == {f"2 runs, {C} to {A}"}


@pytest.mark.usefixtures("runs")
def test_several_heads_stand_against_the_first(compare: Compare) -> None:
    """Each other run is compared with the first, in one document; part of an id is completed."""
    beginning = A.partition("_")[0]
    assert compare(beginning, C).out.startswith(f"base  {beginning} ({A})\nhead  {C}\n")
    output = compare(A, C, B, "--format=json")
    assert output.code == ExitCode.REGRESSION
    heads = {b["head_label"] for b in output.json["benchmarks"] if b["verdict"] == "regressed"}
    assert heads == {B}
    assert output.json["head_labels"] == [C, B]


@pytest.mark.usefixtures("runs")
def test_only_changed(compare: Compare) -> None:
    """Only changed benchmarks are listed; the counts are of all."""
    output = compare(A, B, "--only-changed")
    assert "resnet" not in output.out
    assert "3 unchanged" in output.out
    (row,) = csv.DictReader(io.StringIO(compare(A, B, "--only-changed", "--format=csv").out))
    assert (row["id"], row["verdict"]) == (MLP, "regressed")


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (["--limit=15%"], ExitCode.OK),
        (["--limit=15%", "--limit=step_time_s=5%"], ExitCode.REGRESSION),
        (["--limit=step_time_s=<=0.0105"], ExitCode.REGRESSION),
        (["--limit=15%", "--limit=samples_per_s=5%"], ExitCode.REGRESSION),
    ],
)
@pytest.mark.usefixtures("runs")
def test_limits_decide(compare: Compare, limits: list[str], code: ExitCode) -> None:
    """Limits for all metrics, for one, and absolute bounds."""
    output = compare(A, B, *limits)
    assert output.code == code, output.out


def test_paired_launches(compare: Compare, tmp_path: Path) -> None:
    """Five pairs suffice for slower, and for unchanged with ``--unchanged-from=5``."""
    noise = (1.0, 1.001, 0.999, 1.002, 0.998)
    for i, factor in enumerate(noise):
        write_run(tmp_path / "results", 2 * i, {MLP: 0.010 * factor, RESNET: 0.02 * factor})
        slower = {MLP: 0.0115 * factor * (1 + i / 5000), RESNET: 0.02 * factor}
        write_run(tmp_path / "results", 2 * i + 1, slower)
    bases, heads = ([run_id(2 * i + side) for i in range(5)] for side in (0, 1))
    sides = ("--paired", "--base", *bases, "--head", *heads, "--format=json")
    output = compare(*sides)
    assert output.code == ExitCode.REGRESSION, output.out
    assert output.verdicts[MLP, "step_time_min_s"] == "regressed"
    assert output.verdicts[RESNET, "step_time_min_s"] == "inconclusive"
    row = next(b for b in output.json["benchmarks"] if b["verdict"] == "regressed")
    assert (row["launches"], row["method"]) == (5, "paired")
    assert row["effect"] == pytest.approx(0.15, abs=0.01)
    early = compare(*sides, "--unchanged-from=5")
    assert early.verdicts[RESNET, "step_time_min_s"] == "unchanged"


@pytest.mark.parametrize("side", ["--base", "--head"])
def test_one_launch_is_paired_once(compare: Compare, runs: Path, side: str) -> None:
    """A run under another name is the same run; on both sides a note says so."""
    (runs.parent / "link").symlink_to(runs / "default" / A)
    sides = {"--base": [A, B], "--head": [A, C], side: [A, "link"]}
    output = compare("--paired", *(part for name, runs in sides.items() for part in (name, *runs)))
    assert output.code == ExitCode.USAGE
    assert f"{side}: {A} is given twice" in output.err
    output = compare("--paired", "--base", A, B, "--head", "link", C)
    assert "link is compared with itself" in output.out


def test_one_file_is_paired_once(compare: Compare, tmp_path: Path) -> None:
    """A file of pytest-benchmark has no run id; its path identifies it."""
    entry = {"fullname": "x", "stats": {"median": 1.0, "min": 1.0}}
    (tmp_path / "a.json").write_text(json.dumps({"machine_info": {}, "benchmarks": [entry]}))
    output = compare("--paired", "--base", "a.json", "./a.json", "--head", "a.json", "a.json")
    assert output.code == ExitCode.USAGE
    assert f"--base: {tmp_path / 'a.json'} is given twice" in output.err
    assert "a.json is compared with itself" in compare("a.json", "./a.json").out


def test_nothing_in_common_is_exit_code_3(compare: Compare, tmp_path: Path) -> None:
    """Runs without a common benchmark cannot be compared; of several heads the others still are."""
    for number, name in enumerate((MLP, RESNET, MLP)):
        write_run(tmp_path / "results", number, {name: 0.01})
    output = compare(A, B)
    assert output.code == ExitCode.NOTHING_COMPARABLE
    assert "in common" in output.err
    output = compare(A, B, C)
    assert output.code == ExitCode.NOTHING_COMPARABLE
    assert "in common" in output.out
    assert "unchanged" in output.out


def test_other_machine_is_incomparable_unless_allowed(compare: Compare, tmp_path: Path) -> None:
    """The differing keys are named; ``--allow-incomparable`` compares with a note."""
    write_run(tmp_path / "results", 0)
    write_run(tmp_path / "results", 1, facts={"cpu": {"model": "Another", "usable_cores": 2}})
    output = compare(A, B, "--format=json")
    assert output.code == ExitCode.NOTHING_COMPARABLE
    assert "cpu.model" in output.json["benchmarks"][0]["reason"]
    output = compare(A, B, "--allow-incomparable")
    assert output.code == ExitCode.OK
    assert "cpu.model" in output.out
    output = compare(A, B, "--limit=step_time_s=<=1")
    assert output.code == ExitCode.NOTHING_COMPARABLE, "a bound that is kept compares nothing"


def test_new_removed_and_failed_benchmarks_are_said(compare: Compare, tmp_path: Path) -> None:
    """None of them is merged with another kind; one that the base measured counts as worse.

    So does a limit of a metric that is not there.
    """
    failed = measurement("broken", outcome="failed")
    write_run(tmp_path / "results", 0, [measurement(), measurement("gone"), measurement("broken")])
    write_run(tmp_path / "results", 1, [measurement(), measurement("fresh"), failed])
    output = compare(A, B, "--format=json")
    assert output.code == ExitCode.REGRESSION
    assert mentions(output.json["notes"][-1], "1 benchmark failed", "regression (exit code 1)")
    kinds = {i: kind for (i, _), kind in output.verdicts.items()}
    assert (kinds["gone"], kinds["fresh"], kinds["broken"]) == ("removed", "new", "errored")
    output = compare(B, B, "--format=json")
    assert (output.code, output.verdicts["broken", ""]) == (ExitCode.OK, "errored"), "on both sides"
    write_run(tmp_path / "results", 2, [measurement(limits={"mfu": ">=0.5"})])
    output = compare(C, C)
    assert output.code == ExitCode.REGRESSION
    assert mentions(output.out, "1 limit could not be checked", "regression (exit code 1)")


def test_what_the_head_lacks_fails_if_asked(compare: Compare, tmp_path: Path) -> None:
    """Gone or skipped, and named; not what the base skipped as well."""
    results, never = tmp_path / "results", measurement("never", outcome="skipped")
    write_run(results, 0, [measurement(), measurement("gone"), measurement("skips"), never])
    skips = measurement("skips", outcome="skipped")
    write_run(results, 1, [measurement(), skips, never])
    assert compare(A, B).code == 0
    output = compare(A, B, "--gate-missing=fail")
    assert output.code == ExitCode.REGRESSION
    assert "1 removed (gone): fail (--gate-missing=fail)" in output.out
    assert "1 not measured any more (skips): fail (--gate-missing=fail)" in output.out


def test_interrupted_run_is_compared_as_far_as_it_came(compare: Compare, tmp_path: Path) -> None:
    """Its completed benchmarks are compared; missing ones are no regression."""
    unmeasured = measurement(RESNET, outcome="not_measured")
    write_run(tmp_path / "results", 0, {MLP: 0.010, RESNET: 0.020})
    write_run(tmp_path / "results", 1, [measurement(MLP, 0.010), unmeasured], status="interrupted")
    output = compare(A, B)
    assert output.code == ExitCode.OK
    assert f"{B} was interrupted" in output.out
    assert "not measured" in output.out


@pytest.mark.parametrize("arguments", [[A, B], ["--paired", "--base", A, "--head", B]])
def test_killed_run_counts_as_a_failure_of_what_it_never_told_of(
    compare: Compare, tmp_path: Path, arguments: list[str]
) -> None:
    """Benchmarks without a record are errored, since one may have killed the run."""
    unmeasured = measurement(RESNET, outcome="not_measured")
    write_run(tmp_path / "results", 0, {MLP: 0.010, RESNET: 0.020})
    write_run(tmp_path / "results", 1, [measurement(MLP, 0.010), unmeasured], status=None)
    output = compare(*arguments, "--format=json")
    assert output.code == ExitCode.REGRESSION
    assert output.verdicts[RESNET, ""] == "errored"
    assert "it was killed, or is still running" in output.out
    assert output.json["notes"][-1].startswith("1 benchmark failed that the base measured")
    assert compare(B, A).code == ExitCode.OK


def test_baseline_is_compared_with_by_its_name(compare: Compare, runs: Path) -> None:
    """A baseline's name stands for its pinned run; an unknown name says which there are."""
    Baselines(runs, None).set("main", [A], branch="main")
    output = compare("main", B)
    assert output.code == ExitCode.REGRESSION, output.err
    assert f"main ({A})" in output.out
    output = compare("mian", B)
    assert output.code == ExitCode.USAGE
    assert "did you mean 'main'?" in output.err


def test_pinned_run_that_is_gone_is_said(compare: Compare, runs: Path) -> None:
    """Another pinned run is used instead."""
    Baselines(runs, None).set("main", [A, C], branch=None)
    shutil.rmtree(runs / "default" / A)
    output = compare("main", B, "--format=json")
    assert output.code == ExitCode.REGRESSION, output.err
    missing, stands_in = output.json["notes"][:2]
    assert f"the pinned run {A} is missing" in missing
    assert stands_in == f"baseline 'main': {C} is used instead of the pinned run {A}"


def test_run_of_another_machine_is_found_in_the_registry(
    compare: Compare, runs: Path, tmp_path: Path
) -> None:
    """A run that is not here is looked up in the registry by its id."""
    elsewhere = write_run(tmp_path / "elsewhere", 7, {MLP: 0.010, RESNET: 0.020})
    with Registry.open("", runs) as registry:
        registry.ingest(elsewhere)
    assert compare(elsewhere.run_id, B).code == ExitCode.REGRESSION


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([A], "at least two runs"),
        ([A, B, "--format=tabel"], "--format: unknown 'tabel' (did you mean 'table'?)"),
        ([A, "results/nothing"], "no such folder"),
        ([A, "nohting.json"], "no such file (did you mean 'nothing.json'?)"),
        ([A, B, "--limit=step_tim_s=3%"], "did you mean 'step_time_s'?"),
        ([A, B, "--base", C], "--head and --unchanged-from require --paired"),
        (["--paired", "--base", A], "needs --base and --head"),
        (["--paired", A, "--base", A, "--head", B], "needs --base and --head"),
        (["--paired", "--base", A, B, "--head", C], "2 base launches but 1 head launch"),
        ([A, "2026"], "3 runs start with '2026'"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_bad_usage_is_exit_code_2(
    compare: Compare, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """One line has the error and the nearest match; nothing else is printed."""
    (tmp_path / "nothing.json").touch()
    output = compare(*arguments)
    assert output.code == ExitCode.USAGE
    assert message in output.err
    assert output.out == ""


@pytest.mark.usefixtures("runs")
def test_a_broken_file_is_exit_code_4(compare: Compare, tmp_path: Path) -> None:
    """An unreadable file is not a usage error."""
    (tmp_path / "nothing.json").touch()
    output = compare(A, "nothing.json")
    assert output.code == ExitCode.INFRASTRUCTURE
    assert output.err.startswith(f"gpubench: {tmp_path / 'nothing.json'} is not JSON")


@pytest.mark.usefixtures("runs")
def test_comparing_imports_no_torch(tmp_path: Path) -> None:
    """Files of a run hold all that the command needs."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    process = subprocess.run(
        [sys.executable, "-m", "gpubench_plugin", "compare", A, C],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_closed_pipe_keeps_the_verdict(runs: Path) -> None:
    """A reader that stops early, such as ``head``, gets the exit code and no error."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gpubench_plugin", "compare", A, B, f"--results-dir={runs}"]
    process = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (process.returncode, process.stderr) == (ExitCode.REGRESSION, "")
