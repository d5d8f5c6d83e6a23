"""Inference: the forward pass as a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.core.records import Check, Work
from gpubench_plugin.environment.devices import timed_s
from gpubench_plugin.measure.protocols import Log
from gpubench_plugin.precision._nested import tensors_in, values_of
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.training.check import is_finite, refuse_autocast
from gpubench_plugin.training.data.base import DataSource
from gpubench_plugin.workloads.base import Workload, run_fake_step

CASTS_WEIGHTS: Final = "casts_weights_each_call"
"""Key in the record: the timed calls cast all weights, as under autocast in any application."""


@dataclass(eq=False, repr=False, kw_only=True)
class Inference:
    """Runs `module` on `data` in eval mode, one batch per call of :meth:`step`.

    A step does not synchronize. Of `ranks_per_batch` ranks with the same batch each counts an equal
    part. Without `checks` the outputs may be anything.
    """

    module: nn.Module
    workload: Workload[Any]
    data: DataSource
    precision: Precision
    device: torch.device
    ranks_per_batch: int = 1
    checks: bool = True
    calls: int = field(default=0, init=False)
    _output: object = field(default=None, init=False)
    _data_wait_ns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.module.eval()
        # Parameters gathered by FSDP2 need version counters, which inference mode omits.
        sharded = isinstance(self.module, FSDPModule)
        self._without_gradients = torch.no_grad if sharded else torch.inference_mode

    @property
    def samples_per_step(self) -> int:
        """Samples per call of :meth:`step` on this rank."""
        return self.data.batch_size // self.ranks_per_batch

    def step(self) -> None:
        """Run one batch (hot path)."""
        requested_ns = perf_counter_ns()
        batch = next(self.data)
        self._data_wait_ns += perf_counter_ns() - requested_ns
        self._output = None  # or two batches' outputs would take memory at once
        with self._without_gradients(), self.precision.forward_context(self.device):
            self._output = self.workload.forward(self.module, batch)
        self.calls += 1

    def prepare(self, log: Log) -> Check:
        """Run one batch, timed, and check its outputs.

        Raises:
            Misuse: autocast is on around the benchmark.
            CorrectnessError: an output is not finite.
        """
        refuse_autocast(self.device)
        self.module.eval()  # the test may have trained it
        first_step_s = timed_s(self.step, self.device)
        self._require_finite_output()
        casts = {CASTS_WEIGHTS: True} if self.precision.casts_weights else {}
        return Check(
            correctness={"outputs_finite": self.checks or None, **casts},
            facts={"first_step_s": first_step_s},
        )

    def begin(self) -> None:
        """Forget the waits of the untimed calls."""
        self._data_wait_ns = 0

    def finish(self) -> Mapping[str, float]:
        """``data_wait_s`` since :meth:`begin`; for denoising models ``iterations_per_call``.

        Raises:
            CorrectnessError: an output of the last call is not finite.
        """
        self._require_finite_output()
        facts = {"data_wait_s": self._data_wait_ns / 1e9}
        if self.workload.denoises:
            facts["iterations_per_call"] = 1.0
        return facts

    def work(self) -> Work:
        """Samples and tokens of one batch on this rank."""
        samples = self.samples_per_step
        return Work(samples=samples, tokens=self.workload.tokens(samples))

    def flops_step(self) -> None:
        """Forward pass of one batch on fake tensors, for FLOP counting."""
        run_fake_step(self.workload, samples=self.samples_per_step, backward=False)

    def _require_finite_output(self) -> None:
        if not self.calls or not self.checks:  # before the first call
            return
        tensors = list(tensors_in(self._output))
        if not tensors:
            raise CorrectnessError(
                f"the model's output is a {type(self._output).__name__}, whose values cannot be "
                "checked; allowed: tensors, in tuples, lists or dictionaries"
            )
        for output in tensors:
            if not is_finite(output):
                bad_count = int((~torch.isfinite(values_of(output))).sum())
                raise CorrectnessError(
                    f"the model's output: {bad_count} of {output.numel()} values are not finite"
                )
