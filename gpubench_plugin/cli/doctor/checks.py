"""All checks, in the order in which they run and are shown. A finding has its check's name.

Those of torch come last: its process starts CUDA, which takes memory of the GPUs and raises their
clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from gpubench_plugin.cli.doctor import gpus as gpu_checks
from gpubench_plugin.cli.doctor import host, software
from gpubench_plugin.cli.doctor.machine import Fact, Gpu, Machine, Unknown

Subject = TypeVar("Subject", Machine, Gpu)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the check `name` found: `value` is the fact in words, or why it is `unknown`.

    A `warning` has an `advice`, and an unknown fact may have one. `device` is the GPU, None of
    other checks.
    """

    name: str
    section: str
    device: str | None = None
    outcome: Literal["ok", "warning", "unknown"]
    value: str
    advice: str = ""


MACHINE_CHECKS: Final[tuple[Callable[[Machine], Fact], ...]] = (
    host.governor,
    host.turbo,
    host.load,
    host.hyperthreads,
    host.cpu_quota,
    host.stolen_time,
    host.swap,
    host.huge_pages,
    host.shared_memory,
    host.disk_results,
    host.disk_temporary,
)
GPU_CHECKS: Final[tuple[Callable[[Gpu], Fact], ...]] = (
    gpu_checks.clocks,
    gpu_checks.persistence,
    gpu_checks.ecc,
    gpu_checks.mig,
    gpu_checks.power_limit,
    gpu_checks.processes,
)
SOFTWARE_CHECKS: Final[tuple[Callable[[Machine], Fact], ...]] = (
    software.driver,
    software.architectures,
    software.nccl,
    software.gpu_links,
)


def examine(machine: Machine) -> Iterator[Finding]:
    """Findings of all checks; those of a GPU once for each."""
    for check in MACHINE_CHECKS:
        yield finding(check, machine, "machine")
    for gpu in machine.gpus:
        for gpu_check in GPU_CHECKS:
            yield finding(gpu_check, gpu, f"GPU {gpu.index} ({gpu.name})")
    for check in SOFTWARE_CHECKS:
        yield finding(check, machine, "software")


def finding(check: Callable[[Subject], Fact], subject: Subject, section: str) -> Finding:
    """What `check` finds; unknown with the reason if it fails."""
    is_gpu = isinstance(subject, Gpu)
    outcome: Literal["ok", "warning", "unknown"] = "unknown"
    try:
        value, advice = check(subject)
        outcome = "warning" if advice else "ok"
    except Unknown as error:
        value, advice = str(error), error.advice
    except Exception as error:  # what a kernel, a driver or a library answers is not ours
        value, advice = f"{type(error).__name__}: {error}", ""
    return Finding(
        name=f"gpu_{check.__name__}" if is_gpu else check.__name__,
        section=section,
        device=section if is_gpu else None,
        outcome=outcome,
        value=value,
        advice=advice,
    )
