"""Tests of reading runs: real sessions of both plugins, and files as they should not be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from gpubench_plugin.core import records
from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.core.records import LaunchSample, Measurement, Metric
from gpubench_plugin.results import sources
from gpubench_plugin.results.reader import run_of
from gpubench_plugin.results.summary import write_summary
from tests.support.other_plugins import switched_off
from tests.support.runs_builder import RESNET, measurement, write_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Result, Run, RunRecord, RunStatus

SCHEMA = Path(records.__file__).parents[2] / "docs" / "schemas" / "journal.schema.json"
QUICK = (
    *("--measure.by=steps", "--measure.steps=20", "--measure.warmup_s=0.001"),
    *("--benchmark-max-time=0.01", "--benchmark-min-rounds=3"),
)
TESTS = """
import pytest

@pytest.mark.gpubench(limits={"step_time_s": "3%"})
def test_ours(gpubench):
    gpubench(lambda: sum(range(2000)), samples=4)

def test_fails(gpubench):
    assert False, "on purpose"

def test_theirs(benchmark):
    benchmark(sum, range(2000))
"""
OURS = "test_it.py::test_ours"


def _pytest(folder: Path, *args: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_"))}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": switched_off()},
        capture_output=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a session with both kinds of benchmark: ``results`` and ``saved.json``."""
    folder = tmp_path_factory.mktemp("session")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(TESTS)
    _pytest(folder, "--benchmark-json=saved.json", *QUICK)
    assert (folder / "saved.json").is_file()
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that pytest-benchmark has written without this plugin."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(
        "def test_theirs(benchmark):\n    benchmark(sum, range(9))\n"
    )
    _pytest(folder, "-p", "no:gpubench", "--benchmark-json=saved.json", *QUICK[3:])
    return folder / "saved.json"


def read(text: str | Path, here: Path) -> Run:
    return sources.load_run(str(text), results_dir=here / "results", cwd=here)


def without_configuration(run: Run) -> dict[str, Result]:
    return {name: replace(result, configuration={}) for name, result in run.results.items()}


@pytest.mark.slow
def test_run_reads_the_same_wherever_it_is_read(session: Path) -> None:
    """Folder, id, prefix, summary and journal give one run; JSON files the same benchmarks."""
    (folder,) = session.glob("results/*/*")
    whole = read(folder, session)
    assert whole.results[OURS].outcome == "measured"
    assert whole.results[OURS].limits == {"step_time_s": "3%"}
    assert whole.results[OURS].timer == "perf_counter_ns"
    assert whole.status == "failed"
    for text in (folder.name, folder.name[:12], folder / "summary.json", folder / "metrics.jsonl"):
        from_file = read(text, session)
        assert (
            from_file.started < from_file.finished
        )  # its end is written twice, one after the other
        same = {"label": "", "finished": ""}
        assert replace(from_file, **same) == replace(whole, **same)
    sampled = json.loads((session / "saved.json").read_text())
    for benchmark in sampled["benchmarks"]:  # the mean is that of blocks, which have pauses
        benchmark["stats"]["mean"] = 9.0
    (session / "sampled.json").write_text(json.dumps(sampled))
    for text in ("saved.json", "sampled.json", folder / "benchmark.json"):
        saved = read(text, session)
        assert without_configuration(saved)[OURS] == without_configuration(whole)[OURS]
        assert (saved.machine, saved.environment) == (whole.machine, whole.environment)
        assert (saved.run_id, saved.started) == (whole.run_id, whole.started)
        assert not saved.foreign


@pytest.mark.slow
def test_plain_benchmark_beside_ours_is_read(session: Path) -> None:
    """A test of pytest-benchmark in our session has its times and the machine's facts."""
    foreign_result = read("saved.json", session).results["test_it.py::test_theirs"]
    assert foreign_result.outcome == "measured"
    assert foreign_result.metrics["step_time_s"].value > 0
    assert foreign_result.metrics["step_time_min_s"].better == "lower"


@pytest.mark.slow
def test_failed_benchmark_has_its_reason(session: Path) -> None:
    """What failed has no numbers, and says why."""
    (folder,) = session.glob("results/*/*")
    failed = read(folder, session).results["test_it.py::test_fails"]
    assert (failed.outcome, failed.launches) == ("failed", ())
    assert "on purpose" in failed.reason


@pytest.mark.slow
def test_journal_obeys_the_published_schema(session: Path) -> None:
    """Every line of a real session's journal is valid against the schema in ``docs/``."""
    validator = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    (journal,) = session.glob("results/*/*/metrics.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {line["event"] for line in lines} >= {"run_started", "benchmark", "run_finished"}
    for line in lines:
        validator.validate(line)


@pytest.mark.slow
def test_foreign_file_is_read(foreign: Path) -> None:
    """Of a file of pytest-benchmark alone, times and the machine as far as it knows are read."""
    run = read(foreign, foreign.parent)
    (result,) = run.results.values()
    stats = json.loads(foreign.read_text())["benchmarks"][0]["stats"]
    assert run.foreign
    assert result.id == "test_it.py::test_theirs"
    assert result.launches[0]["step_time_s"] == stats["median"]
    assert result.launches[0]["step_time_min_s"] == stats["min"]
    assert run.machine["platform.system"]
    assert run.machine["python.version"] == ".".join(map(str, sys.version_info[:2]))
    assert run.started.endswith("Z")


def _entry(name: str = "test_a.py::test_a", **stats: Any) -> dict[str, Any]:
    return {"name": name, "fullname": name, "stats": {"median": 0.5, "min": 0.25, **stats}}


def _file(folder: Path, *entries: Any, **more: Any) -> Path:
    path = folder / "some.json"
    path.write_text(json.dumps({"machine_info": {}, "benchmarks": list(entries), **more}))
    return path


FIELDS = ("median", "min", "mean", "max", "rounds", "iterations")
WRONG = [(name, value) for name in FIELDS for value in (float("nan"), float("inf"), 0, -1.0)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(*WRONG, ("stddev", float("nan")), ("stddev", -1.0), ("max", 0.375), ("min", 0.75)),
        *(("mean", 0.2), ("mean", 0.75), ("rounds", 2.5), ("iterations", 1.5)),
    ],
)
def test_untrue_time_costs_only_its_benchmark(tmp_path: Path, name: str, value: float) -> None:
    """A benchmark whose times are impossible fails with the reason; the rest is read."""
    rounded = _entry("test_b.py::test_b", stddev=0.0, max=0.5, mean=0.5 + 1e-16, rounds=2.0)
    entries = [_entry(**{"max": 0.625, name: value}), rounded]
    broken, whole = read(_file(tmp_path, *entries), tmp_path).results.values()
    assert broken.outcome == "failed"
    assert f"{name} {float(value)}" in broken.reason
    assert whole.outcome == "measured"


def test_benchmark_that_is_there_twice_fails(tmp_path: Path) -> None:
    """Of two entries of one name none is taken by chance."""
    run = read(_file(tmp_path, _entry(), _entry(median=9.0)), tmp_path)
    (result,) = run.results.values()
    assert result.outcome == "failed"
    assert "contains it 2 times" in result.reason


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"benchmarks": [', "is not JSON"),
        (b"[1, 2]", "neither a run summary nor a pytest-benchmark file"),
        (b'{"machine_info": {}, "benchmarks": [3]}', r"at benchmarks\.0: "),
        (b'{"machine_info": {}, "benchmarks": [{"stats": {}}]}', r"at benchmarks\.0\.fullname"),
        (
            b'{"machine_info": {}, "benchmarks": [{"fullname": "a"}]}',
            r"at benchmarks\.0\.stats: missing key",
        ),
        (b'{"machine_info": {}, "datetime": "noon", "benchmarks": []}', "is malformed: .*noon"),
        (
            json.dumps({"machine_info": {}, "benchmarks": [{**_entry(), "gpubench": {}}]}).encode(),
            "test_a violates the schema at metrics: missing key",
        ),
        (b'{"schema_version": 99, "run_id": "x"}', "schema_version 99; .* 1 only"),
        (b'{"schema_version": 1, "run_id": "x"}', "violates the schema"),
        (
            b'{"machine_info": {}, "benchmarks": [], "gpubench": {"schema_version": 9}}',
            "gpubench: schema_version 9; .* 1 only",
        ),
    ],
)
def test_bad_file_is_refused_with_one_message(tmp_path: Path, data: bytes, message: str) -> None:
    """Whatever the file holds, one message says what is wrong with it."""
    (tmp_path / "bad.json").write_bytes(data)
    with pytest.raises(UsageProblem, match=message):
        read("bad.json", tmp_path)


def test_what_is_no_file_of_a_run_is_refused(tmp_path: Path) -> None:
    """A missing file with the nearest name; nothing waits for a pipe."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "base.json").touch()
    os.mkfifo(tmp_path / "pipe")
    for text, message in (
        ("bad/bse.json", r"no such file \(did you mean 'base.json'\?\)"),
        ("not/there.json", "no such file"),
        ("pipe", "is not a regular file"),
        (os.devnull, "is not a regular file"),
        ("bad", "bad is not a run directory"),
        ("20990101T", "no run in"),
    ):
        with pytest.raises(UsageProblem, match=message):
            read(text, tmp_path)
    with pytest.raises(ResultsError, match=r"cannot read .*: File name too long"):
        read("x" * 5000, tmp_path)


@pytest.mark.parametrize(
    ("status", "flags"), [(None, ("unfinished",)), ("interrupted", ()), ("complete", ())]
)
@pytest.mark.parametrize("file", ["", "metrics.jsonl"])
def test_what_a_killed_run_never_told_of_is_flagged(
    tmp_path: Path, status: RunStatus | None, flags: tuple[str, ...], file: str
) -> None:
    """Only where the run has no end, which an orderly interruption is."""
    unmeasured = measurement(RESNET, outcome="not_measured")
    directory = write_run(tmp_path, 0, [measurement(), unmeasured], status=status)
    lines = directory.journal.read_text().splitlines(keepends=True)
    directory.journal.write_text("".join(x for x in lines if '"not_measured"' not in x))
    result = read(directory.path / file, tmp_path).results[RESNET]
    assert (result.outcome, result.flags) == ("not_measured", flags)
    assert ("it was killed, or is still running" in result.reason) == bool(flags)


def test_run_whose_summary_is_there_has_ended(tmp_path: Path) -> None:
    """Whatever its journal lacks."""
    unmeasured = measurement(RESNET, outcome="not_measured")
    directory = write_run(tmp_path, 0, [measurement(), unmeasured], status=None)
    directory.summary.touch()
    assert read(directory.journal, tmp_path).results[RESNET].flags == ()


def test_own_session_is_the_run_that_it_will_write(
    tmp_path: Path, run_record: Callable[..., RunRecord], measured: Callable[..., Measurement]
) -> None:
    """What a session holds in memory equals what is read from its summary, launches included."""
    metrics = {**measured().metrics, "mfu": Metric(name="mfu", value=float("nan"), unit="")}
    launch = LaunchSample(samples=None, metrics=metrics, flags=())
    both = (
        measured(metrics=metrics),
        measured(id="several", launches=2, per_launch=(launch, launch)),
        measured(id="failed", outcome="failed", reason="why", metrics={}, samples=None),
    )
    record = run_record(benchmarks=both, environment={"platform": {"system": "Linux"}})
    write_summary(tmp_path / "summary.json", record)
    own = run_of("here", both, record.environment)
    written = read("summary.json", tmp_path)
    assert own.results == written.results
    assert own.machine == written.machine == {"platform.system": "Linux"}
    assert len(own.results["several"].launches) == 2
