"""Curves of a run whose benchmarks ran several times."""

from __future__ import annotations

from gpubench_plugin.results.progress import curves_of


def test_curves_are_those_of_the_last_try() -> None:
    """A rerun, a resumed run and each launch log from the first step on; other benchmarks stay."""
    events = [
        {"benchmark": "b", "event": "training_step", "step": 1, "loss": 9.0},
        {"benchmark": "a", "event": "phase", "phase": "build"},
        *({"benchmark": "a", "event": "training_step", "step": n, "loss": 1.0} for n in (1, 2, 3)),
        {"benchmark": "a", "event": "phase", "phase": "build"},
        {"benchmark": "a", "event": "training_step", "step": 1, "loss": 0.5},
    ]
    curves = [(curve.benchmark, curve.steps, curve.values) for curve in curves_of(events)]
    assert curves == [("b", (1,), (9.0,)), ("a", (1,), (0.5,))]
