"""A case: one selected benchmark before it runs."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.core.records import Measurement, Outcome
from gpubench_plugin.environment.devices import too_few_reason
from gpubench_plugin.environment.fingerprints import flat
from gpubench_plugin.environment.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpubench_plugin.config.marks import BenchmarkMark, Timing
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.core.errors import MissingPackage
    from gpubench_plugin.environment.devices import Device

_NOT_COMPARED: Final = (
    "experiment.notes",
    "profiling.",
    "gate.",
    "measure.profile",  # the keys it sets are compared
    "measure.timing",  # the name of the clock is compared
    "measure.rounds_file",
    "measure.timeout_s",
    "measure.throttle",  # judges, or waits before the timing
    "measure.check",  # with check_steps and so on: not timed
    "training.loss_drop",  # only judges the untimed training
    "training.checkpoint",
    "training.resume",
    "distributed.failure_grace_s",
    "distributed.divergence_s",
    "diffusion.receive_timeout_s",
    "model.init_device",  # see comparable()
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One benchmark with its parameters, device and resolved configuration.

    `fixed_rounds` come from ``measure.rounds_file`` or a baseline. An `adopted` case was written
    for pytest-benchmark, and runs and is measured as an ordinary test. One with `full_profile_only`
    is too slow on a CPU for a run of the whole suite. One that is not `is_offered` in its
    precision, or uses none where another is selected, does not run, nor does one with a
    `memory_shortage`: the reason why its device is too small or too full for it, or that `lacks` a
    package, torch, without which its configuration is not resolved either. One that does not
    ask for `gpubench` runs on ranks as an ordinary test: it `measures` nothing. `facts` by dot key
    are known once it is built; like keys of the configuration they decide what is comparable.
    """

    id: str
    params: dict[str, str]
    mark: BenchmarkMark
    world_size: int
    device: Device
    configuration: Configuration[Any]
    fixed_rounds: FixedRounds | None = None
    adopted: bool = False
    full_profile_only: bool = False
    is_offered: bool = True
    uses_precision: bool = True
    uses_torch: bool = True
    memory_shortage: str = ""
    lacks: MissingPackage | None = None
    measures: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Test function name with parameters: the last part of the id."""
        return self.id.rpartition("::")[2]

    @property
    def precision(self) -> str:
        """The name of the precision."""
        return self.configuration.precision.name

    @property
    def shares_device(self) -> bool:
        """Whether all its ranks on this host share one device."""
        return self.world_size > 1 and self.configuration.distributed.share_device

    @property
    def timing(self) -> Timing:
        """How its device is timed: on CUDA as the mark states unless the configuration does."""
        timing = self.configuration.measure.timing
        if timing == "auto":
            return self.mark.timing if self.device.type == "cuda" else "step"
        return timing

    def timeout_s(self, default_s: float) -> float:
        """Timeout in seconds: from its configuration, else its mark, else the default."""
        return self.configuration.measure.timeout_s or self.mark.timeout_s or default_s

    def skip_reason(self, world_size: int | None = None) -> BaseException | None:
        """Reason not to run with a world size of `world_size`, or with any."""
        if self.adopted or self.lacks:
            return self.lacks
        if reason := self._deselect_reason():
            return pytest.skip.Exception(reason)
        if reason := self._unsupported_reason():
            return Unsupported(reason)
        ranks = self.world_size if world_size in {None, 1} else 1
        too_few = too_few_reason(self.device, ranks, shares_device=self.shares_device)
        if reason := too_few or self.memory_shortage:
            return Unsupported(reason)
        if world_size is not None and world_size != self.world_size:
            return pytest.skip.Exception(f"needs {self.world_size} ranks, not {world_size}")
        return None

    def _deselect_reason(self) -> str:
        """Reason to deselect or skip a measurable benchmark in this run; empty if none."""
        if not self.mark.allows(self.world_size):
            return self.mark.needed_ranks
        is_quick = self.device.type == "cpu" and self.configuration.measure.profile != "full"
        if self.full_profile_only and is_quick:
            return "measured on a CPU only with --measure.profile=full"
        if self.mark.preset not in {None, self.configuration.experiment.preset}:
            return f"measured only with --preset={self.mark.preset}"
        return ""

    def _unsupported_reason(self) -> str:
        """Reason that it cannot be measured in this precision or timing; empty if it can."""
        if not self.is_offered and self.uses_precision:
            return f"this benchmark does not support precision {self.precision}"
        if not self.is_offered:
            return (
                "does not use precision: neither it nor its fixtures request `precision`; "
                "add the fixture `precision` to the test, or omit --precision, or include fp32"
            )
        timing, device, cache = self.timing, self.device.type, self.configuration.measure.cache
        if timing == "kernel" and device != "cuda":
            return f"measure.timing=kernel requires a CUDA device, not {device!r}"
        if cache == "cold" and device != "cuda":
            return f"measure.cache=cold requires a CUDA device, not {device!r}"
        if cache == "cold" and timing != "kernel":
            return "measure.cache=cold requires measure.timing=kernel, not step"
        return ""

    def unmeasured(self, outcome: Outcome, reason: str = "") -> Measurement:
        """Record without numbers, used unless the benchmark is measured; without secrets, too."""
        return Measurement(
            id=self.id,
            name=self.name,
            params=self.params,
            world_size=self.world_size,
            host=socket.gethostname(),
            outcome=outcome,
            reason=redact(reason),
            configuration=self.configuration.model_dump(mode="json"),
            sources={k: redact(source) for k, source in self.configuration.sources.items()},
            settings={**comparable(self.configuration), **self.facts},
            limits=self.configuration.gate.limits,
        )


def device_models(cases: Iterable[Case]) -> dict[str, str]:
    """Device models by torch device name, for all `cases`."""
    return {case.device.torch_name: case.device.model for case in cases}


def devices_of(cases: Collection[Case], requested: Iterable[str]) -> str:
    """Devices used by `cases`, as shown in the header; `requested` are those of --device."""
    text = ", ".join(f"{name} ({model})" for name, model in device_models(cases).items())
    on_cpu = any(case.uses_torch and case.device.type == "cpu" for case in cases)
    return f"{text}; auto: no accelerator found" if on_cpu and "auto" in requested else text


CUDA_METHOD: Final = 1
"""Number of the method of timing on CUDA, raised as the measuring method of all devices is."""


def comparable(configuration: Configuration[Any]) -> dict[str, Any]:
    """Non-default keys that can affect a measurement, by dot key, and facts beside them.

    These are the workload's revision, the type of the device that draws the weights, since other
    weights give other losses, and the method on CUDA. Defaults, first revisions and the CPU are
    omitted so that one added later leaves earlier baselines comparable.
    """
    keys = comparable_part(flat(configuration.model_dump(mode="json", exclude_defaults=True)))
    model = configuration.model
    if model.revision != 1:
        keys["model.revision"] = model.revision
    if model.name is not None and configuration.init_device_type != "cpu":
        keys["model.init_device_type"] = configuration.init_device_type
    if configuration.experiment.device == "cuda":
        keys["measure.cuda_method"] = CUDA_METHOD
    return keys


def comparable_part(keys: dict[str, Any]) -> dict[str, Any]:
    """Restrict dot `keys` to those that can affect a measurement."""
    return {key: value for key, value in keys.items() if not key.startswith(_NOT_COMPARED)}
