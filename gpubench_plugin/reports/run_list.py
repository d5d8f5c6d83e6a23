"""Run list as a table, single runs in full, and their curves with a sparkline for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import isfinite
from operator import attrgetter
from typing import Any, Final

from gpubench_plugin.core.format import short_commit
from gpubench_plugin.reports.table import column, labelled, lines, wrapped
from gpubench_plugin.reports.text import evenly_chosen, printable, sparkline
from gpubench_plugin.results.progress import Curve
from gpubench_plugin.results.reader import RunOverview

_LABEL_WIDTH: Final = 12  # of a fact's name: the longest, and a gap
_BARS: Final = 24  # of a sparkline: the rest of 80 columns is for names and numbers
# Events whose curves people read; JSON has those of single steps as well.
SHOWN: Final = frozenset({"epoch", "log"})


def run_table(runs: Sequence[RunOverview], total: int) -> Iterator[str]:
    """The table, `total` columns wide, with damaged runs listed below."""
    measured = [f"{r.measured}/{r.benchmarks}" if r.state != "broken" else "" for r in runs]
    yield from lines(
        [
            column("run", [run.run_id for run in runs]),
            column("status", [_state(run) for run in runs]),
            column("measured", measured, numeric=True),
            column("branch", [run.branch or "" for run in runs]),
            column("tags", [", ".join(run.tags) for run in runs]),
            column("commit", [_commit(run) for run in runs]),
            column("experiment", [run.experiment for run in runs]),
        ],
        total,
        uncut_columns=2,
    )
    for run in runs:
        if run.error:
            yield from wrapped(f"{run.run_id}: {run.error}", total)


def run_in_full(
    run: RunOverview,
    names: Sequence[str],
    verdicts: str,
    environment: Mapping[str, Any],
    total: int,
    *,
    current: str = "",
) -> Iterator[str]:
    """Full description of `run`: `names` are baselines that use it, `verdicts` a summary.

    `current` is the benchmark that runs, or in which the run was interrupted, with its phase.
    """
    facts = {
        "run": run.run_id,
        "experiment": run.experiment,
        "status": _state(run),
        "running" if run.state == "running" else "stopped in": current,
        "problem": run.error,
        "started": run.started,
        "command": " ".join(("pytest", *run.command)) if run.command else "",
        "commit": _commit(run, full=True),
        "branch": run.branch or "",
        "outcomes": ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in run.outcomes.items()),
        "verdicts": verdicts,
        "tags": ", ".join(run.tags),
        "baselines": ", ".join(names),
        "folder": str(run.path or "not on this machine"),
    }
    for name, text in facts.items():
        if text:
            yield from labelled(f"{name:{_LABEL_WIDTH}}", text, total)
    if environment:
        yield "environment"
    for key, value in environment.items():
        yield from wrapped(f"{key}: {'unknown' if value is None else value}", total, indent="  ")


def run_as_json(run: RunOverview) -> dict[str, Any]:
    """The fields of `run`, its state as ``status``."""
    fields = {**vars(run), "benchmarks": run.benchmarks, "measured": run.measured}
    return {"status": fields.pop("state"), **fields}


def _state(run: RunOverview) -> str:
    return f"{run.state}, regressed" if run.regressed else run.state


def _commit(run: RunOverview, *, full: bool = False) -> str:
    commit_text = (run.commit or "") if full else short_commit(run.commit)
    return f"{commit_text}+changes" if commit_text and run.dirty else commit_text


def curve_lines(curves: Iterable[Curve], total: int) -> Iterator[str]:
    """Tables of the `curves` of epochs and of ``gpubench.log``, at most `total` columns wide."""
    shown = [curve for curve in curves if curve.event in SHOWN]
    for benchmark, group in groupby(shown, key=attrgetter("benchmark")):
        own = list(group)
        yield f"curves of {printable(benchmark)}"
        yield from lines(
            [
                column("event", [curve.event for curve in own]),
                column("curve", [curve.name for curve in own]),
                column("points", [len(curve.values) for curve in own], numeric=True),
                column("first", [f"{curve.values[0]:.4g}" for curve in own], numeric=True),
                column("last", [f"{curve.values[-1]:.4g}" for curve in own], numeric=True),
                column("shape", [_shape(curve) for curve in own]),
            ],
            total,
        )


def _shape(curve: Curve) -> str:
    values = [value for value in curve.values if isfinite(value)]
    return sparkline(evenly_chosen(values, _BARS))
