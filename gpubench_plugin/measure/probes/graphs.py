"""What ``torch.compile`` makes of a step: its graphs, their breaks, and recompilations."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from traceback import FrameSummary
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from gpubench_plugin.measure.probes.places import of_user, places_here

if TYPE_CHECKING:
    from gpubench_plugin.ranks.agreement import RankAgreement

_CALLS: Final = 3
"""Of the step: by the third, torch has compiled what changes between calls for all its values."""

_KEPT: Final = 10_000
"""Compilations of a step that are counted, at most; torch keeps 64."""

_USER_FRAME: Final = re.compile(r'File "(.+)", line (\d+), in (\w+)')
_NAMES: Final = ("graph_breaks", "recompiles", "compiled_graphs")
Counts: TypeAlias = tuple[dict[str, float], dict[str, list[FrameSummary]]]
"""Counts by metric, and the places of what is counted."""


def graphs_of(step: Callable[[], object], agreement: RankAgreement) -> Counts:
    """Graphs of `step`, which all ranks run; nothing where that fails on one.

    Where torch has compiled nothing since its compiler was reset, it is not called.
    """
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    if agreement.everywhere(not getattr(compiler, "FRAME_COUNTER", compiler)):
        return dict.fromkeys(_NAMES, 0.0), {}
    counted: Counts = ({}, {})
    with suppress(Exception):
        counted = count_graphs(step)
    return counted if agreement.everywhere(bool(counted[0])) else ({}, {})


def count_graphs(step: Callable[[], object]) -> Counts:
    """Compile `step` anew, in three calls that run its graphs eagerly; its errors are raised.

    So the counts depend neither on what ran before nor on the number of timed calls. A place where
    graphs break counts once, though a function that others call breaks theirs as well. Compiled
    code is dropped before and after.
    """
    from torch._dynamo import utils

    callers: list[tuple[str, FrameSummary | None]] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        compile_id = str(torch._guards.CompileContext.current_compile_id())
        callers.append((compile_id, of_user(places_here())))
        return graph.forward

    torch.compiler.reset()
    utils.set_compilation_metrics_limit(_KEPT)
    before = len(utils.get_compilation_metrics())
    try:
        with torch.compiler.set_stance("default", force_backend=backend):
            for _ in range(_CALLS):
                step()
        records = utils.get_compilation_metrics()[before:]
        breaks = {place[:2]: place for place in _breaks(utils.graph_break_reasons, records)}
        recompiles = [*_recompilations(records, dict(callers))]
    finally:
        utils.set_compilation_metrics_limit(utils.DEFAULT_COMPILATION_METRICS_LIMIT)
        torch.compiler.reset()
    counts = map(float, (len(breaks), len(recompiles), len(callers)))
    places = {"graph_breaks": [*breaks.values()], "recompiles": recompiles}
    return dict(zip(_NAMES, counts, strict=True)), places


def _place(place: FrameSummary | None, reason: str) -> FrameSummary:
    """The `place` with the first line of torch's `reason`."""
    what = reason.strip().partition("\n")[0]
    what = "a branch on a tensor" if what.startswith("generic_jump") else what
    return FrameSummary(*(place[:3] if place else ("?", 0, "?")), line=what)


def _breaks(reasons: Iterable[Any], records: Iterable[Any]) -> Iterator[FrameSummary]:
    """Breaks of graphs, and of functions that run uncompiled, since the break is in a loop."""
    for each in reasons:
        yield _place(of_user(reversed(each.user_stack)), each.reason)
    for each in records:
        if (file := each.fail_user_frame_filename) and each.fail_type != "SkipFrame":
            place = FrameSummary(file, each.fail_user_frame_lineno, each.co_name)
            yield _place(place, each.fail_reason)


def _recompilations(
    records: Iterable[Any], callers: Mapping[str, FrameSummary | None]
) -> Iterator[FrameSummary]:
    """At the line that needs what has changed, else the function, else where that is called."""
    for each in records:
        if reason := each.recompile_reason:
            text, _, stack = reason.partition("\nUser stack trace:")
            what = re.split(r"  #|\n", text.partition(": ")[2])[0]
            lines = [FrameSummary(f, int(n), name) for f, n, name in _USER_FRAME.findall(stack)]
            function = FrameSummary(each.co_filename, each.co_firstlineno, each.co_name)
            place = of_user([*lines[::-1], function]) or callers.get(str(each.compile_id))
            yield _place(place or function, what if "mismatch" in what else f"changed: {what}")
