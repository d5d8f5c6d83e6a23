"""The work of a step: asked before the timing, and again after it.

A schedule, a cache or a condition can make the timed calls do less than those that were checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.core.format import listed
from gpubench_plugin.measure.probes.operations import DtypeCensus, storage_address

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """What a step did: `counts`, the parameters that it `used`, and `shares` of them by their name.

    Each is told by what is lost without it.
    """

    counts: Mapping[str, int]
    used: frozenset[str]
    shares: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, step: Callable[[], object], module: nn.Module, *, counts: bool) -> Self:
        """Run `step`, which trains or calls `module`; its errors are raised.

        Without `counts` nothing is counted, and all parameters are taken for used.
        """
        parameters = {name.removeprefix("module."): p for name, p in module.named_parameters()}
        versions = {name: p._version for name, p in parameters.items()}
        derived: set[str] = set()
        census = DtypeCensus()
        with ExitStack() as stack:
            for name, parameter in parameters.items():
                if parameter.requires_grad:
                    derive = partial(lambda name, _: derived.add(name), name)
                    stack.callback(parameter.register_post_accumulate_grad_hook(derive).remove)
            if counts:
                stack.enter_context(census)
            step()
        updated = {name for name, p in parameters.items() if p._version != versions[name]}
        used = (n for n, p in parameters.items() if storage_address(p) in census.inputs)
        return cls(
            counts={"FLOPs": census.flops, "values in the loss": census.reduced},
            used=frozenset(used if counts else parameters),
            shares={"no gradient": frozenset(derived), "not updated": frozenset(updated)},
        )

    def require_equal(self, before: StepWork) -> None:
        """Refuse other work than `before`; what is not used is left to routing.

        Raises:
            CorrectnessError: naming what differs.
        """
        lost = {
            problem: sorted((names - self.shares[problem]) & self.used)
            for problem, names in before.shares.items()
        }
        texts = [f"{problem}: {listed(names)}" for problem, names in lost.items() if names]
        for what, count in before.counts.items():
            if count != self.counts[what]:
                texts.append(f"{what}: {self.counts[what]:,}, before {count:,}")
        if texts:
            raise CorrectnessError(f"a step after the timing: {'; '.join(texts)}")
