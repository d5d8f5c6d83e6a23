"""Texts about a running benchmark: the status line, and the screen of ``gpubench watch``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from gpubench_plugin.core.format import counted, decimal_rate, duration, percentage, rough_duration
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.reports.text import cut, evenly_chosen, printable, sparkline
from gpubench_plugin.results.progress import BenchmarkProgress, RunProgress

_DIGITS: Final = 3
_LABEL_COLUMNS: Final = 9
_MOST_NUMBERS: Final = 6
_MOST_NODES: Final = 6
"""In one line, which is made for every event: with 200 nodes it took half of the session's time."""


def current_line(run: RunProgress, name: str = "") -> str:
    """One line about what is running: ``[3/12] name: build``; empty where nothing is.

    Without a `name` it is ``[3/12] build``.
    """
    live = run.current
    if live is None:
        return ""
    if (number := len(run.running)) > 1:
        parts = [_where(live) for live in islice(run.running.values(), _MOST_NODES)]
        parts += [f"{number - _MOST_NODES} more"] * (number > _MOST_NODES)
        return printable(f"{_place(run)} {' | '.join(parts)}")
    label = f"{name}: " if name else ""
    return printable(f"{_place(run)} {label}{status_text(live)}")


def _where(live: BenchmarkProgress) -> str:
    """What runs on a node, in short: ``node7: test_step[fp32] measure, 3 s left``."""
    return f"{live.node}: {live.id.rpartition('::')[2]} {status_text(live)}"


def _place(run: RunProgress) -> str:
    """Which benchmark of how many is running: ``[3/12]``."""
    return f"[{min(len(run.outcomes) + 1, run.total)}/{run.total}]"


def status_text(live: BenchmarkProgress) -> str:
    """Phase, how far it is, and the time left: ``measure, 120 rounds, ±0.8%, 3 s left``."""
    parts = [live.phase or "start", *_position(live)]
    if live.launch is not None:
        parts.insert(0, f"launch {live.launch}")
    if live.remaining_s is not None:
        parts.append(f"{rough_duration(live.remaining_s)} left")
    return ", ".join(parts)


def _position(live: BenchmarkProgress) -> Iterator[str]:
    if live.phase != "measure" and live.step is not None:
        is_limited = live.phase == "train" and live.steps
        yield f"step {live.step}" + (f" of at most {live.steps}" if is_limited else "")
        if live.loss is not None:
            yield f"loss {live.loss:.4g}"
    elif live.phase == "measure" and live.rounds is not None:
        yield counted(live.rounds, "round")
        if live.half_width is not None:
            yield f"±{percentage(live.half_width)}"


def run_line(run: RunProgress, state: str) -> str:
    """One line about the whole run."""
    counts = Counter(run.outcomes.values())
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    text = f"{run.run_id}: {state}, {len(run.outcomes)} of {counted(run.total, 'benchmark')} done"
    return printable(f"{text} ({outcomes})" if outcomes else text)


def ended_line(run: RunProgress, benchmark: str) -> str:
    """One line about a `benchmark` that is done: ``a.py::test: measured, ≈ 15 ms (contended)``."""
    text, step_s = f"{benchmark}: {run.outcomes[benchmark]}", run.step_times_s.get(benchmark)
    if step_s is not None:
        doubts = doubtful_flags(run.flags[benchmark])
        step = duration(step_s, 2 if doubts else 4)
        text += f", ≈ {step} ({', '.join(doubts)})" if doubts else f", {step}"
    return printable(text)


def live_lines(run: RunProgress, state: str, width: int) -> list[str]:
    """Lines about the run and its current benchmark, none wider than `width`."""
    lines = [run_line(run, state)]
    if len(run.running) > 1:
        lines += [printable(f"  {_where(live)}") for live in run.running.values()]
    elif (live := run.current) is not None:
        room = width - 2 * (1 + _LABEL_COLUMNS) - 2
        bars = sparkline(evenly_chosen(live.losses, room))
        loss = "" if live.loss is None else f" {live.loss:.4g}"
        numbers = [*live.numbers.items()][-_MOST_NUMBERS:]
        facts = {
            "phase": status_text(live),
            "loss": f"{bars}{loss}" if bars else "",
            "logged": ", ".join(f"{name} {value:.4g}" for name, value in numbers),
            "speed": ", ".join(_speed(live)),
        }
        rows = (f"  {name:<{_LABEL_COLUMNS}}{printable(t)}" for name, t in facts.items() if t)
        lines += [printable(f"{_place(run)} {live.id}"), *rows]
    return [cut(line, width) for line in lines]


def _speed(live: BenchmarkProgress) -> Iterator[str]:
    if live.step_s:
        yield f"{duration(live.step_s)} per step"
    for value, unit in ((live.samples_per_s, "samples/s"), (live.tokens_per_s, "tokens/s")):
        if value:
            yield decimal_rate(value, unit, _DIGITS)


def live_json(run: RunProgress, state: str) -> dict[str, Any]:
    """The state of the run as JSON; durations are in seconds."""
    live = run.current
    names = (
        *("id", "node", "phase", "launch", "step", "steps", "loss", "rounds", "half_width"),
        *("step_s", "samples_per_s", "tokens_per_s", "remaining_s", "numbers"),
    )
    return {
        "run_id": run.run_id,
        "state": state,
        "benchmarks": run.total,
        "outcomes": run.outcomes,
        "current": None if live is None else {name: getattr(live, name) for name in names},
        "running": [{name: getattr(b, name) for name in names} for b in run.running.values()],
    }
