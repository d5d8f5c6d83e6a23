"""What ``torch.compile`` makes of a step: its graphs, their breaks, and recompilations."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from traceback import FrameSummary
from typing import Any, Final, TypeAlias

import torch
from torch._guards import CompileContext

from gpubench_plugin.measure.probes.places import of_user, places_here
from gpubench_plugin.ranks.agreement import RankAgreement

_NOWHERE: Final = FrameSummary("?", 0, "?")
_USER_FRAME: Final = re.compile(r'File "(.+)", line (\d+), in (\w+)')
Places: TypeAlias = dict[str, list[FrameSummary]]
"""By metric, a place for each that it counts."""


def graphs_of(step: Callable[[], object], agreement: RankAgreement) -> Places:
    """Graphs of `step`, which all ranks run; nothing where that fails on one.

    Where torch has compiled nothing since its compiler was reset, it is not called.
    """
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    if agreement.everywhere(not getattr(compiler, "FRAME_COUNTER", compiler)):
        return {"graph_breaks": [], "recompiles": [], "compiled_graphs": []}
    places: Places = {}
    with suppress(Exception):
        places = compiled_anew(step)
    return places if agreement.everywhere(bool(places)) else {}


def compiled_anew(step: Callable[[], object]) -> Places:
    """Compile `step` anew, in three calls that run its graphs eagerly; its errors are raised.

    So the counts depend neither on what ran before nor on the number of timed calls. A place where
    graphs break counts once, though a function that others call breaks theirs as well; a graph is
    where it is called. Compiled code is dropped before and after.
    """
    from torch._dynamo import utils

    callers: dict[str, FrameSummary | None] = {}
    graphs: list[FrameSummary] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        caller = callers[str(CompileContext.current_compile_id())] = of_user(places_here())
        graphs.append(caller or _NOWHERE)
        return graph.forward

    torch.compiler.reset()
    utils.set_compilation_metrics_limit(10_000)  # of 64, which a model of many blocks exceeds
    before = len(utils.get_compilation_metrics())
    try:
        with torch.compiler.set_stance("default", force_backend=backend):
            for _ in range(3):  # by the third, what changes is compiled for all its values
                step()
        records = utils.get_compilation_metrics()[before:]
        breaks = {place[:2]: place for place in _breaks(utils.graph_break_reasons, records)}
        recompiles = [*_recompilations(records, callers)]
    finally:
        utils.set_compilation_metrics_limit(utils.DEFAULT_COMPILATION_METRICS_LIMIT)
        torch.compiler.reset()
    return {
        "graph_breaks": [*breaks.values()],
        "recompiles": recompiles,
        "compiled_graphs": graphs,
    }


def _place(place: FrameSummary | None, reason: str) -> FrameSummary:
    """The `place` with the first line of torch's `reason`."""
    what = reason.strip().partition("\n")[0].replace("generic_jump TensorVariable()", "a branch")
    return FrameSummary(*(place or _NOWHERE)[:3], line=what)


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
