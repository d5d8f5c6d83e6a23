"""Calls of the step after the timed ones: under tracers, with inspected tensors, profiled."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpubench_plugin.core.quality_flags import PRECISION_UNUSED

if TYPE_CHECKING:
    import torch

    from gpubench_plugin.bench.step import TimedStep
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.measure.probes.tensor_memory import TensorMemory
    from gpubench_plugin.measure.tracers import Tracers
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import RankAgreement


def run_traced(
    timed: TimedStep, tracers: Tracers, *, agreement: RankAgreement, has_census: bool
) -> None:
    """Run the step once more under tracers (coverage) that were paused, ignoring errors.

    The call of a census, if there is one, is traced.
    """
    is_untraced = tracers.were_paused and timed.subject is None and not has_census
    if agreement.decide(int(is_untraced)):
        with suppress(Exception):
            timed.run()


def inspect_call(
    timed: TimedStep,
    samples: Samples,
    *,
    precision: Precision | None,
    tensors: TensorMemory | None,
) -> tuple[Samples, dict[str, Any], dict[str, float]]:
    """Inspect the tensors of an extra untimed call: flagged `samples`, correctness and facts.

    Only for benchmarks with a `precision`, flagged ``precision_unused`` if no operation is in it,
    and for the memory of `tensors` on a CPU.
    """
    if precision is None and tensors is None:
        return samples, {}, {}
    from gpubench_plugin.measure.probes.products import take_census

    census = take_census(timed.run_briefly)
    if tensors is not None:
        tensors.add_inputs(None if census is None else census.inputs)
    facts = {} if tensors is None else tensors.facts
    if precision is None:
        return samples, {}, facts
    if census is None or not census.confirms(precision.compute_dtype):
        samples = samples.flagged(PRECISION_UNUSED)
    return samples, {"product_dtypes": census and dict(census.products)}, facts


def profile_steps(
    timed: TimedStep, *, case: Case, context: RunContext, device: torch.device
) -> dict[str, Any]:
    """Trace a few extra steps on every rank, if configured; rank zero writes the trace.

    Returns the operators of the steps for the record, on rank zero.
    """
    section, run = case.configuration.profiling, context.run
    if not section.enabled:
        return {}
    from gpubench_plugin.measure.probes.profiler import profile

    operators = profile(
        timed.run,
        section=section,
        device=device,
        path=None if run is None else run.traces / f"{file_name(case)}.json",
    )
    return {} if operators is None else {"operators": operators}


def file_name(case: Case) -> str:
    """Name of the case as a file name, with unsafe characters replaced."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", case.name).strip("-")
