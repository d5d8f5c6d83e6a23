"""All checks, in the order in which they run and are shown. A finding has its check's name.

Those of torch come last: its process starts CUDA, which takes memory of the GPUs and raises their
clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from gpubench_plugin.cli.doctor import gpus as gpu_checks
from gpubench_plugin.cli.doctor import host, software
from gpubench_plugin.cli.doctor.machine import Finding, Gpu, Machine, unknown
from gpubench_plugin.environment.child_process import ChildError

MACHINE_CHECKS: Final[tuple[Callable[[Machine], Finding], ...]] = (
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
GPU_CHECKS: Final[tuple[Callable[[Gpu], Finding], ...]] = (
    gpu_checks.clocks,
    gpu_checks.persistence,
    gpu_checks.ecc,
    gpu_checks.mig,
    gpu_checks.power_limit,
    gpu_checks.processes,
)
SOFTWARE_CHECKS: Final[tuple[Callable[[Machine], Finding], ...]] = (
    software.driver,
    software.architectures,
    software.nccl,
    software.gpu_links,
)


def examine(machine: Machine) -> Iterator[Finding]:
    """Findings of all checks; those of a GPU once for each."""
    for check in MACHINE_CHECKS:
        yield replace(_safe(partial(check, machine)), name=check.__name__, section="machine")
    for gpu in machine.gpus:
        device = f"GPU {gpu.index} ({gpu.name})"
        for gpu_check in GPU_CHECKS:
            finding = _safe(partial(gpu_check, gpu))
            name = f"gpu_{gpu_check.__name__}"
            yield replace(finding, name=name, section=device, device=device)
    for check in SOFTWARE_CHECKS:
        yield replace(_safe(partial(check, machine)), name=check.__name__, section="software")


def _safe(check: Callable[[], Finding]) -> Finding:
    """What `check` finds; unknown with the reason if it fails."""
    try:
        return check()
    except OSError as error:
        return unknown(f"{error.filename or 'the machine'}: {error.strerror or error}")
    except ChildError as error:
        return unknown(f"torch cannot be examined: {error}")
    except Exception as error:  # what a kernel, a driver or a library answers is not ours
        return unknown(f"{type(error).__name__}: {error}")
