"""Variants of a step in whole sessions, on a clock that goes on by what the steps say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

CONFTEST = """
    import pytest
    from gpubench_plugin.bench import measuring
    from gpubench_plugin.measure.clocks.host import CpuClock
    from gpubench_plugin.measure.probes.interference import Contention

    @pytest.fixture
    def step(monkeypatch):
        monkeypatch.setattr(Contention, "flags", ())  # the run queue's clock is another
        time_ns = 0

        def now():
            nonlocal time_ns
            time_ns += 50
            return time_ns

        def step(us, result=None):
            def run():
                nonlocal time_ns
                time_ns += 1000 * us
                return result
            return run

        monkeypatch.setattr(measuring, "clock_for", lambda *_, **__: CpuClock(now))
        return step
"""

TESTS = """
    import pytest

    @pytest.mark.gpubench(limits={"speed_up": ">=1.2"})
    def test_faster(gpubench, step):
        steps = {"eager": step(2500, 7.0), "compiled": step(2000, 7.0)}
        measurement = gpubench.compare(steps, samples=10)
        assert measurement.metrics["speed_up"].value > 1.2
        assert gpubench.result == 7.0

    def test_disagree(gpubench, step):
        gpubench.compare({"eager": step(2500, [1.0]), "compiled": step(2000, [1.5])})

    def test_in_place(gpubench):
        buffer = [0.0]
        def write(value):
            buffer[0] = value
            return buffer
        gpubench.compare({"eager": lambda: write(1.0), "compiled": lambda: write(1.5)})

    @pytest.mark.gpubench(limits={"speed_up_fused": ">=1.01", "speed_up_compiled": ">=1.5"})
    def test_three(gpubench, step):
        steps = {"eager": step(3000), "fused": step(3000), "compiled": step(1500)}
        gpubench.compare(steps, check=False)

    def test_raises(gpubench, step):
        def fails():
            raise ValueError("no such kernel")
        gpubench.compare({"eager": step(1), "compiled": fails})

    def test_raises_later(gpubench, step):
        calls = []
        def fails():
            calls.append(1)
            if len(calls) > 5:
                raise ValueError("no such kernel")
        gpubench.compare({"eager": step(1), "compiled": fails}, check=False)

    def test_lazy(gpubench, step):
        async def later(): ...
        gpubench.compare({"eager": step(1), "compiled": later})

    def test_single(gpubench, step):
        gpubench.compare({"eager": step(1)})

    def test_list(gpubench, step):
        gpubench.compare([step(1), step(2)])

    @pytest.mark.parametrize("name", ["torch compiled", "1st", "x" * 41, 3, "a_ci_low"])
    def test_name(gpubench, step, name):
        gpubench.compare({"eager": step(1), name: step(1)})

    def test_called(gpubench, step):
        gpubench.compare({"eager": step(1)(), "compiled": step(1)})

    @pytest.mark.gpubench(config="mlp")
    @pytest.mark.precision("fp32")
    @pytest.mark.parametrize("wrapped", ["itself", "wrapped"])
    def test_trainer(gpubench, trainer, wrapped):
        steps = {"itself": trainer, "wrapped": lambda: trainer.step()}
        gpubench.compare({"eager": lambda: None, "compiled": steps[wrapped]})

    def test_twice(gpubench, step):
        gpubench(step(1))
        gpubench.compare({"eager": step(1), "compiled": step(1)})

    def test_healthy(gpubench, step):
        gpubench.compare({"one": step(2000, 1), "same": step(2000, 1)}, setup=lambda: None)
"""

REFUSED = {
    "test_disagree": "'compiled' disagrees with 'eager' at result[0]: 1.5 instead of 1.0",
    "test_in_place": "'compiled' disagrees with 'eager' at result[0]: 1.5 instead of 1.0",
    "test_raises": "ValueError: no such kernel (in variant 'compiled')",
    "test_raises_later": "ValueError: no such kernel (in variant 'compiled')",
    "test_lazy": "variant 'compiled': a call of the step returned a coroutine",
    "test_single": "a dict of two or more variants by name",
    "test_list": "allowed: a dict of two or more variants by name",
    "test_name[torch compiled]": "variant 'torch compiled': allowed: a name of at most 40",
    "test_name[1st]": "variant '1st': allowed: a name of at most 40",
    f"test_name[{'x' * 41}]": "at most 40",
    "test_name[3]": "variant 3: allowed: a name of at most 40",
    "test_name[a_ci_low]": "variant 'a_ci_low': allowed: a name",
    "test_called": "None is not callable; pass the step",
    "test_trainer[itself-fp32]": "variant 'compiled' takes a step of the Trainer",
    "test_trainer[wrapped-fp32]": "variant 'compiled' takes a step of the Trainer",
    "test_twice": "gpubench was called twice",
}


def test_speed_ups_are_recorded_gated_and_told(project: Project) -> None:
    """One record per benchmark: the last variant's, with those of the others as metrics."""
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TESTS)

    run = project.run(
        "--gate", "--baseline=none", "--training.steps=1", "--training.loss_drop=null"
    )

    records = {b["name"]: b for b in run.summary["benchmarks"]}
    reasons = {name: records[name]["reason"] for name in REFUSED}
    assert {name: reason for name, reason in reasons.items() if REFUSED[name] not in reason} == {}

    metrics = {name: m["value"] for name, m in records["test_faster"]["metrics"].items()}
    assert metrics["step_time_s"] == metrics["variant_compiled_step_time_s"]
    assert metrics["step_time_s"] == pytest.approx(0.002, rel=1e-3)
    assert metrics["variant_eager_step_time_s"] == pytest.approx(0.0025, rel=1e-3)
    assert metrics["samples_per_s"] == pytest.approx(5000, rel=1e-3)
    assert metrics["speed_up_ci_low"] <= metrics["speed_up"] <= metrics["speed_up_ci_high"]
    assert metrics["speed_up"] == pytest.approx(1.25, rel=1e-3)
    correctness = records["test_faster"]["correctness"]
    assert correctness["variants_agree"] == "close"
    assert [v["name"] for v in correctness["variants"]] == ["eager", "compiled"]
    (turns,) = [
        line["step_s"]
        for line in run.journal
        if line["event"] == "turns" and "test_faster" in line["benchmark"]
    ]
    assert {name: len(seconds) for name, seconds in turns.items()} == {"eager": 10, "compiled": 10}

    assert "unchecked" in records["test_three"]["flags"]
    assert records["test_three"]["metrics"]["speed_up_compiled"]["better"] == "higher"
    verdicts = json.loads((run.directory / "verdicts.json").read_text())["benchmarks"]
    (near,) = (v["reason"] for v in verdicts if v["metric"] == "speed_up_fused")
    assert near.startswith("too wide: 0.9800 to 1.020; ")
    assert sum("too wide: " in v["reason"] for v in verdicts) == 1
    assert {v["metric"]: v["verdict"] for v in verdicts if "speed_up" in v["metric"]} == {
        "speed_up": "unchanged",
        "speed_up_fused": "inconclusive",
        "speed_up_compiled": "unchanged",
    }
    for line in (
        "faster: compiled is 1.25x (1.22 .. 1.27) as fast as eager",
        "three: compiled is 2.00x (1.96 .. 2.04) as fast as eager",
        "healthy: no difference visible: same is 0.980 .. 1.02 times as fast as one",
    ):
        assert line in run.out
    assert run.code == 1


def test_each_runs_once_where_measuring_is_disabled(project: Project) -> None:
    """Results are compared all the same, and the last one's is there to be asserted on."""
    project.write(
        "test_it.py",
        """
        calls = []

        def test_agree(gpubench):
            steps = {n: lambda n=n: calls.append(n) or 1 for n in ("eager", "compiled")}
            assert gpubench.compare(steps).outcome == "not_measured"
            assert (calls, gpubench.result) == (["eager", "compiled"], 1)

        def test_disagree(gpubench):
            gpubench.compare({"eager": lambda: 1, "compiled": lambda: 2})
        """,
    )
    run = project.run("--benchmark-disable")
    assert run.outcomes == {"test_agree": "not_measured", "test_disagree": "failed"}
