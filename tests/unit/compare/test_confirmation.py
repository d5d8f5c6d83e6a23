"""Alarms of a history, and what the launches that follow say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.compare.comparison import compare_history
from gpubench_plugin.compare.confirmation import RELAUNCHES, alarms, rejudge
from gpubench_plugin.core.records import MINIMA
from tests.support.made import result, run

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Result
    from gpubench_plugin.core.verdicts import Verdict


def measured(seconds: float, rounds: int = 100, **more: float) -> Result:
    """A benchmark of so many rounds: the more, the lower its minimum, as that of the first n."""
    metrics = {name: seconds * (1 + 0.01 / n) for n, name in MINIMA.items() if n <= rounds}
    metrics["step_time_min_s"] = seconds * (1 + 0.01 / rounds)
    return limited(**metrics | {"step_time_s": 2 * seconds, "rounds": float(rounds), **more})


def limited(**metrics: float) -> Result:
    """With a limit on its own metric, where it has that."""
    return result(limits={"cost_s": "2%"} if "cost_s" in metrics else {}, **metrics)


def rejudged(pin: Result, head: Result, *repeats: Result, **options: Any) -> list[Verdict]:
    """The verdicts of a head that ten pins, which differ by up to 0.1%, call regressed."""
    scales = [1 + n / 10_000 for n in range(10)]
    values = [{name: m.value * scale for name, m in pin.metrics.items()} for scale in scales]
    for each in values:
        each["rounds"] = pin.metrics["rounds"].value
    pins = [run(f"pin{n}", limited(**each)) for n, each in enumerate(values)]
    alarm, repeat_runs = run("head", head), [run("again", repeat) for repeat in repeats]
    first = compare_history(pins, alarm)
    assert alarms(first) == ("test_a",)
    return [*rejudge(first, pins, alarm, repeat_runs, **options).verdicts]


@pytest.mark.parametrize(("factor", "kind"), [(1.05, "regressed"), (1.0, "inconclusive")])
def test_launches_of_other_rounds_are_compared_by_the_same_minimum(
    factor: float, kind: str
) -> None:
    """One fast call among many times the rounds of the pins says nothing."""
    fast = measured(factor, 400, step_time_min_s=0.95)
    again = [fast, *[measured(1.05, 400)] * (RELAUNCHES - 1)]
    (verdict,) = rejudged(measured(1.0, 20), measured(1.05, 400), *again)
    assert verdict.kind == kind
    assert f"({factor * (1 + 0.01 / 16):.3f} s, 1.051 s, 1.051 s)" in verdict.reason
    assert verdict.reason.startswith("confirmed" if kind == "regressed" else "not confirmed")


def test_each_part_of_a_step_time_is_confirmed_by_itself() -> None:
    """A median that is slow in each launch stands, though the minimum was slow only at first."""
    pin, slow = measured(1.0), measured(1.1)
    again = measured(1.0, step_time_s=2.2)
    (verdict,) = rejudged(pin, slow, *[again] * RELAUNCHES)
    assert (verdict.kind, verdict.metric) == ("regressed", "step_time_s")
    assert verdict.reason.startswith("confirmed by 3 more launches (2.200 s, 2.200 s, 2.200 s): ")


@pytest.mark.parametrize(
    ("doubtful", "kind", "start"),
    [(0, "regressed", "confirmed by 3"), (2, "inconclusive", "in doubt: dependent (head); conf")],
)
def test_what_is_slower_in_doubt_is_decided_by_launches_without_one(
    doubtful: int, kind: str, start: str
) -> None:
    """Most of the four count."""
    slow = measured(1.1)
    doubted = replace(slow, flags=("dependent",))
    again = [doubted] * doubtful + [slow] * (RELAUNCHES - doubtful)
    (verdict,) = rejudged(measured(1.0), doubted, *again)
    assert (verdict.kind, verdict.reason[: len(start)]) == (kind, start)


@pytest.mark.parametrize(
    ("factor", "pins", "flags"),
    [(1.0, (), ("dependent",)), (0.9, (), ("dependent",)), (1.1, ("dependent",), ("dependent",))],
)
def test_nothing_is_launched_again_that_is_not_slower_or_cannot_be_decided(
    factor: float, pins: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    """A base in doubt stays in doubt."""
    bases = [run(f"pin{n}", replace(measured(1 + n / 10_000), flags=pins)) for n in range(10)]
    head = run("head", replace(measured(factor), flags=flags))
    assert alarms(compare_history(bases, head)) == ()


@pytest.mark.parametrize("lacking", [1, RELAUNCHES])
def test_a_metric_that_a_launch_lacks_confirms_nothing(lacking: int) -> None:
    """The alarm stands with the reason; that of the same benchmark's step time is judged."""
    pin, slow = measured(1.0, cost_s=1.0), measured(1.1, cost_s=1.1)
    again = [slow] * (RELAUNCHES - lacking) + [measured(1.1)] * lacking
    kinds = {v.metric: (v.kind, v.reason) for v in rejudged(pin, slow, *again)}
    assert kinds["cost_s"][0] == "regressed"
    assert kinds["cost_s"][1].endswith("; relaunched, but without cost_s")
    assert kinds["step_time_min_s"][1].startswith("confirmed by 3 more launches")


@pytest.mark.parametrize(("adopted", "kind"), [((), "regressed"), (("test_a",), "inconclusive")])
def test_what_is_incomparable_when_launched_again_confirms_nothing(
    adopted: tuple[str, ...], kind: str
) -> None:
    """The alarm of an adopted test is withdrawn, any other stands; both say why."""
    other = result(settings={"training.batch_size": 2}, step_time_s=2.2, step_time_min_s=1.1)
    (verdict,) = rejudged(measured(1.0), measured(1.1), *[other] * RELAUNCHES, adopted=adopted)
    assert verdict.kind == kind
    assert "; relaunched, it is incomparable: training.batch_size" in verdict.reason
