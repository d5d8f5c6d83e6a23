"""The options that an adopted test was measured with stand in its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.compare.comparison import compare_runs
from gpubench_plugin.core.records import Measurement
from gpubench_plugin.results.pytest_benchmark import add_metrics
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.sources import load_run
from gpubench_plugin.system import json_files, stored
from tests.support.runs_builder import measurement, write_run
from tests.unit.bench.adoption.test_adopter import ID, MS, Test

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from gpubench_plugin.core.records import Run

DEFAULTS = {
    "disable_gc": False,
    "min_rounds": 5,
    "min_time": 0.000005,
    "max_time": 1.0,
    "calibration_precision": 10,
    "precision": None,
    "warmup": False,
}


def calibrated(test: Test) -> Measurement:
    """What is recorded of ``benchmark(step)``, whose step takes 100 ms."""
    test.benchmark._get_precision = lambda _: 1e-9
    return test.measured(lambda benchmark: benchmark(test.torch.host.spend, 100 * MS))


def pedantic(test: Test, *args: Any, **rounds: Any) -> Measurement:
    """What is recorded of ``benchmark.pedantic(step, …)``."""

    def body(benchmark: BenchmarkFixture) -> None:
        benchmark.pedantic(lambda: test.torch.host.spend(MS), *args, **rounds)

    return test.measured(body)


def test_defaults_are_no_settings_but_part_of_the_configuration() -> None:
    """So that a file that states another value differs from them."""
    measured = calibrated(Test(None))
    assert measured.settings == {}
    assert measured.configuration["pytest_benchmark"] == DEFAULTS
    assert measured.configuration["measure"]["min_rounds"]


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ({"disable_gc": True}, {"disable_gc": True}),
        ({"min_rounds": 7}, {"min_rounds": 7}),
        ({"min_time": "0.5"}, {"min_time": 0.5}),
        ({"max_time": "0.25"}, {"max_time": 0.25}),
        ({"calibration_precision": 20}, {"calibration_precision": 20}),
        ({"mark": {"calibration_precision": 30}}, {"calibration_precision": 30}),
        ({"warmup": True}, {"warmup": True}),
        ({"warmup": True, "warmup_iterations": 9}, {"warmup": True, "warmup_iterations": 9}),
        ({"warmup_iterations": 9}, {}),
        ({"precision": 0.1, "confidence": 0.99}, {"precision": 0.1}),
        ({"precision": 0.1, "confidence": 0.5}, {"precision": 0.1, "confidence": 0.5}),
        ({"confidence": 0.5}, {}),
    ],
)
def test_an_option_that_is_no_default_is_a_setting(
    options: dict[str, Any], stated: dict[str, Any]
) -> None:
    """Of the command line or of a mark, where it bears on the numbers."""
    measured = calibrated(Test(None, **options))
    assert measured.settings == {f"pytest_benchmark.{name}": v for name, v in stated.items()}
    assert stored.restore(Measurement, stored.dump(measured), "it") == measured


def test_a_pedantic_test_states_its_own_rounds() -> None:
    """Rules that end measuring do not bear on it, the garbage collector does."""
    options = {"disable_gc": True, "max_time": "0.25", "warmup": True}
    assert pedantic(Test(None, **options)).settings == {
        "pytest_benchmark.disable_gc": True,
        "pytest_benchmark.rounds": 1,
    }
    measured = pedantic(Test(None), (), {}, None, None, 3, 2, iterations=4)
    assert measured.settings == {
        "pytest_benchmark.rounds": 3,
        "pytest_benchmark.warmup_rounds": 2,
        "pytest_benchmark.iterations": 4,
    }


def test_a_plugin_that_states_an_option_has_the_last_word() -> None:
    """As with everything else in a record."""
    test = Test(None, disable_gc=True)
    own = measurement(ID, settings={"pytest_benchmark.disable_gc": "by me"})
    test.item.ihook.pytest_gpubench_measurement = lambda **_: own
    assert calibrated(test).settings == own.settings


def adopted(folder: Path, number: int, **options: Any) -> Run:
    """A recorded run of an adopted test under these options."""
    return RunReader(write_run(folder, number, [calibrated(Test(None, **options))])).run()


def saved(folder: Path, test: Test, *, ours: bool = False) -> Run:
    """The file that pytest-benchmark writes of it; with our part of it if `ours`."""
    measured = calibrated(test)
    entry = test.benchmark.stats.as_dict()
    document = {"machine_info": {}, "benchmarks": [entry]}
    if ours:
        add_metrics(document, {ID: measured})
    path = folder / "saved.json"
    json_files.write_json(path, document)
    return load_run(str(path), results_dir=folder, cwd=folder)


def verdict(base: Run, head: Run) -> str:
    """The verdict on the benchmark, or else on its step time, with its reason."""
    found = compare_runs(base, head).verdicts
    (one, *_) = [v for v in found if v.metric in {"", "step_time_s", "step_time_min_s"}]
    return f"{one.kind}: {one.reason}"


def test_runs_under_other_options_are_not_comparable(tmp_path: Path) -> None:
    """The verdict names the keys with both values."""
    plain, same = adopted(tmp_path, 1), adopted(tmp_path, 2)
    other = adopted(tmp_path, 3, disable_gc=True, warmup=True)
    assert "incomparable" not in verdict(plain, same)
    said = verdict(plain, other)
    assert said.startswith("incomparable")
    assert "pytest_benchmark.disable_gc False in base, True in head" in said
    assert "pytest_benchmark.warmup False in base, True in head" in said


@pytest.mark.parametrize("ours", [False, True])
def test_a_file_of_pytest_benchmark_is_compared_alike(tmp_path: Path, ours: bool) -> None:
    """With a run, and with another file; with our part in it and without."""
    run = adopted(tmp_path, 1)
    plain = saved(tmp_path, Test(None), ours=ours)
    other = saved(tmp_path, Test(None, disable_gc=True), ours=ours)
    assert plain.foreign
    for base in (run, plain):
        assert "incomparable" not in verdict(base, plain)
        for said in (verdict(base, other), verdict(other, base)):
            assert "incomparable: pytest_benchmark.disable_gc" in said
