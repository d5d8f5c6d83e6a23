"""What there is: GPU, driver, versions, and whether they fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpubench_plugin.cli.doctor import software
from gpubench_plugin.cli.doctor.machine import this_machine
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment.child_process import ChildError
from gpubench_plugin.environment.hardware import gpu_facts
from gpubench_plugin.environment.system_facts import package_versions

if TYPE_CHECKING:
    from gpubench_plugin.cli.doctor.machine import Machine
    from gpubench_plugin.cli.gpu_check.stage import StageRun


def facts(run: StageRun) -> None:
    """Record the GPU and the versions; driver, torch and NCCL must fit.

    Raises:
        Unsupported: there is no GPU that torch can use, with the reason.
    """
    with this_machine(run.folder) as machine:
        examine(run, machine)


def examine(run: StageRun, machine: Machine) -> None:
    """The same for any machine."""
    gpus = (gpu_facts() or {}).get("devices", ())  # before CUDA starts in the child of torch
    try:
        torch = machine.torch
    except ChildError as error:
        run.fact(versions=package_versions())
        _check_found(run, machine, 0)
        raise Unsupported(f"torch cannot be examined: {error}") from error
    run.fact(versions=_versions(machine, torch))
    _check_found(run, machine, torch["devices"])
    if not torch["devices"]:
        raise Unsupported(_reason(machine, torch))
    gpu = machine.gpus[0] if machine.gpus else None
    known: Mapping[str, Any] = next(
        (g for g in gpus if gpu is not None and g["uuid"] == gpu.answer("GetUUID")), {}
    )
    run.fact(device={"name": torch["device"]["model"], **_told(known)})
    for check in (software.driver, software.architectures, software.nccl):
        finding = check(machine)
        advice = f"; {finding.advice}" if finding.advice else ""
        run.fact(**{check.__name__: f"{finding.value}{advice}"})
        run.check(f"gpubench doctor: {check.__name__} is ok", finding.outcome == "ok", "equal", 1)


def _check_found(run: StageRun, machine: Machine, devices: int) -> None:
    """Check that torch finds a GPU where the driver shows one; else there is none to check."""
    if machine.visible:
        run.check("GPUs that torch finds", devices, "at_least", 1)


def _versions(machine: Machine, torch: Mapping[str, Any]) -> dict[str, str]:
    versions = {"driver": machine.driver, "CUDA": torch["cuda"], "NCCL": torch["nccl"]}
    known = {name: version for name, version in versions.items() if version is not None}
    return {**known, **package_versions()}


def _told(known: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of NVML on this GPU, but for its name, which torch tells as well."""
    return {key: value for key, value in known.items() if value is not None and key != "name"}


def _reason(machine: Machine, torch: Mapping[str, Any]) -> str:
    if torch["cuda"] is None:
        return f"torch {torch['version']} was built without CUDA"
    driver = software.driver(machine)
    problem = torch["problem"] or driver.value
    return f"torch {torch['version']} for CUDA {torch['cuda']} finds no GPU: {problem}"
