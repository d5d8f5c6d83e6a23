"""The numbers to show: each beside a loop of twenty steps written by hand over the same model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.cli.gpu_check.hand_loop import LOOPS, PLUGIN
from gpubench_plugin.cli.gpu_check.rows import check_goals, row_of
from gpubench_plugin.environment import json_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.cli.gpu_check.stage import StageRun
    from gpubench_plugin.core.records import Measurement

LIMIT: Final = 0.5
"""Percent that measuring may add to a step."""

_RESNET: Final = "benchmarks/training/test_resnet.py"
_LLAMA: Final = "benchmarks/training/test_llama.py"


def resnet50(run: StageRun, *, limit: float = LIMIT) -> None:
    """ResNet-50 in amp, channels_last, compiled and not."""
    cases = [("channels_last-compiled", "amp"), ("channels_last", "amp")]
    headline(run, f"{_RESNET}::test_resnet50_train", cases, limit=limit)


def resnet50_b1024(run: StageRun, *, limit: float = LIMIT) -> None:
    """ResNet-50 in amp at a batch of 1024, as published figures have it."""
    cases = [("channels_last-compiled-b1024", "amp")]
    headline(run, f"{_RESNET}::test_resnet50_train", cases, limit=limit)


def llama(run: StageRun, *, limit: float = LIMIT) -> None:
    """Llama in bf16 with the loss compiled, eager, and with weights of 16 bits."""
    cases = [("compiled-step", "bf16"), ("", "bf16"), ("compiled-step", "bf16-true")]
    headline(run, f"{_LLAMA}::test_llama_train", cases, limit=limit)


def headline(
    run: StageRun, test: str, cases: Sequence[tuple[str, str]], *, limit: float, **keys: str
) -> None:
    """Measure each case of `test`, a variant in a precision, within `limit` percent of its loop.

    Each has a session of its own: one that fails does not lose the next. `keys` are further keys of
    section ``measure``.
    """
    run.file_of_suite(test.partition("::")[0])
    for number, (variant, precision) in enumerate(cases):
        node_id = f"{test}[{'-'.join(filter(None, (variant, precision, 'ws1')))}]"
        title = node_id.rpartition("::")[2]
        loops = run.folder / f"loops-{number}.json"
        session = run.pytest(
            f"headline-{number}",
            *(node_id, f"--gpubench-preset={run.preset}", f"--gpubench-precision={precision}"),
            *(f"--gpubench-set=measure.{key}={value}" for key, value in keys.items()),
            *("-p", PLUGIN),
            cwd=run.repository,
            environ={LOOPS: str(loops)},
        )
        run.check(f"{title}: exit code", session.code, "equal", 0)
        run.check(f"{title}: benchmarks", len(session.benchmarks), "equal", 1)
        bare_s: Mapping[str, Any] = json_files.load(loops) if loops.exists() else {}
        for benchmark in session.benchmarks:
            judge(run, benchmark, bare_s.get(benchmark.id), limit=limit)
            check_goals(run, benchmark, session.device_name)


def judge(run: StageRun, benchmark: Measurement, bare_s: float | None, *, limit: float) -> None:
    """Record the row, and compare throughput with the loop's."""
    row = row_of(benchmark, bare_s=bare_s)
    run.row(row)
    samples = benchmark.samples
    own_s = None if samples is None else sum(samples.block_s) / samples.calls
    error = None if own_s is None or not bare_s else abs(own_s / bare_s - 1) * 100
    run.check(f"{benchmark.name}: step from the loop by hand", error, "at_most", limit, "%")
    run.check(f"{benchmark.name}: rate", row.rate, "at_least", 0, row.rate_unit)
    if row.mfu is None:
        run.unproven(f"{benchmark.name}: MFU (the peak of this device, or its FLOPs, are unknown)")
