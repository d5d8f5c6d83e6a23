"""Decoding by captured graphs: that they are captured, and what a token takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.cli.gpu_check.rows import row_of
from gpubench_plugin.cli.gpu_check.stages.traces import events_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubench_plugin.cli.gpu_check.stage import StageRun

_SUITE: Final = "benchmarks/inference/test_llama.py"
_REPLAY: Final = "cudaGraphLaunch"
"""Call of the CUDA runtime that replays a graph, as CUPTI names it in a trace."""
_STEPS: Final = 3
"""Default of profiling.steps."""


def decode(run: StageRun) -> None:
    """Decode eagerly and by graphs, one row and many, with a trace of each."""
    run.file_of_suite(_SUITE)
    for execution in ("eager", "reduce-overhead"):
        for batch in ("b1", "bmax"):
            name = f"{execution}-{batch}"
            session = run.pytest(
                name,
                *(_SUITE, "-k", f"decode and {execution} and {batch}", "--precision=bf16-true"),
                *(f"--preset={run.preset}", "--profile", "--gpubench-set=measure.profile=quick"),
                cwd=run.repository,
            )
            run.check(f"{name}: exit code", session.code, "equal", 0)
            measured = session.outcomes.count("measured")
            run.check(f"{name}: measured benchmarks", measured, "equal", 1)
            for benchmark in session.benchmarks:
                run.row(row_of(benchmark))
            check_graphs(run, name, events_of(session.traces), captured=execution != "eager")


def check_graphs(
    run: StageRun, name: str, events: Iterable[dict[str, Any]], *, captured: bool
) -> None:
    """Each traced step of a `captured` execution replays a graph, an eager one none."""
    events = [*events]
    kernels = sum(event.get("cat") == "kernel" for event in events)
    run.check(f"{name}: kernels in the trace", kernels, "at_least", 1)
    replays = sum(event.get("name") == _REPLAY for event in events)
    name = f"{name}: replays of a graph in {_STEPS} steps"
    if captured:
        run.check(name, replays, "at_least", _STEPS)
    else:
        run.check(name, replays, "equal", 0)
