"""Checks of GPUs by a stand-in for NVML, and of driver and torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.cli.commands.doctor import checks, examine, finding
from gpubench_plugin.cli.doctor import gpus, software
from gpubench_plugin.cli.doctor.machine import Fact, Machine
from tests.support.fake_gpus import FakeGpu, FakeNvml

Write = Callable[[str, str], None]
Machines = Callable[..., Machine]

found_by = partial(finding, section="software")
CUT = "not 0 and 1: data goes through main memory"


def of_gpu(machine: Machines, check: Callable[[Any], Fact], **answers: Any) -> tuple[str, str, str]:
    """Outcome, value and advice about a GPU with these answers of ``nvmlDevice…``."""
    fake = FakeGpu(answers={f"nvmlDevice{name}": value for name, value in answers.items()})
    found = found_by(check, machine(library=FakeNvml(fake)).gpus[0])
    return found.outcome, found.value, found.advice


def used(percent: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=percent)


@pytest.mark.parametrize(
    ("clock", "percent", "outcome", "value"),
    [
        (345, 0, "warning", "not locked: 345 of 1980 MHz while idle"),
        (1500, 0, "ok", "1500 of 1980 MHz while idle: locked"),
        (1980, 0, "unknown", "1980 of 1980 MHz; whether they are locked"),
        (1500, 9, "unknown", "1500 of 1980 MHz; whether they are locked"),
        (None, 0, "unknown", "the GPU or its driver does not tell"),
    ],
)
def test_clocks(
    machine: Machines, clock: int | None, percent: int, outcome: str, value: str
) -> None:
    """An idle GPU whose clock stays up has it locked; a busy one does not show it."""
    found = of_gpu(
        machine,
        gpus.clocks,
        GetClockInfo=lambda kind: clock,
        GetMaxClockInfo=lambda kind: 1980,
        GetUtilizationRates=used(percent),
    )
    assert found[0] == outcome
    assert found[1].startswith(value)
    assert ("--lock-gpu-clocks" in found[2]) == (outcome != "ok" and clock is not None)


ON = {"GetEccMode": [1, 1]}


@pytest.mark.parametrize(
    ("answers", "outcome", "value"),
    [
        (ON, "ok", "on"),
        ({"GetEccMode": [0, 0]}, "ok", "off"),
        ({"GetEccMode": [1, 0]}, "warning", "on, off after a reset"),
        ({**ON, "GetTotalEccErrors": lambda *_: 2}, "warning", "on; 2 uncorrected errors since"),
        ({**ON, "GetRemappedRows": (0, 1, 1, 0)}, "warning", "on; rows of its memory wait to be "),
        ({}, "unknown", "the GPU or its driver does not tell"),
    ],
)
def test_ecc(machine: Machines, answers: dict[str, Any], outcome: str, value: str) -> None:
    """Errors and a mode about to change hurt; being on or off does not."""
    found = of_gpu(machine, gpus.ecc, **answers)
    assert (found[0], found[1].startswith(value)) == (outcome, True)


@pytest.mark.parametrize(
    ("check", "answers", "outcome"),
    [
        (gpus.persistence, {"GetPersistenceMode": 1}, "ok"),
        (gpus.persistence, {"GetPersistenceMode": 0}, "warning"),
        (gpus.persistence, {"GetPersistenceMode": None}, "unknown"),
        (gpus.mig, {"GetMigMode": None}, "ok"),
        (gpus.mig, {"GetMigMode": [0, 0]}, "ok"),
        (gpus.mig, {"GetMigMode": [1, 1]}, "warning"),
        (gpus.mig, {"GetMigMode": [0, 1]}, "warning"),
    ],
)
def test_modes(
    machine: Machines, check: Callable[[Any], Fact], answers: dict[str, Any], outcome: str
) -> None:
    """A driver that is loaded anew forgets clocks; slices share what a measurement needs."""
    assert of_gpu(machine, check, **answers)[0] == outcome


@pytest.mark.parametrize(
    ("limit", "outcome", "value"),
    [
        (700_000, "ok", "700 W (default 700, at most 750)"),
        (500_000, "warning", "500 W (default 700, at most 750)"),
        (None, "unknown", "the GPU or its driver does not tell"),
    ],
)
def test_power_limit(machine: Machines, limit: int | None, outcome: str, value: str) -> None:
    """A limit below the default hurts; the advice sets the default."""
    found = of_gpu(
        machine,
        gpus.power_limit,
        GetEnforcedPowerLimit=limit,
        GetPowerManagementDefaultLimit=700_000,
        GetPowerManagementLimitConstraints=[200_000, 750_000],
    )
    assert found[:2] == (outcome, value)
    assert ("--power-limit=700" in found[2]) == (outcome == "warning")


UNSEEN = "processes that are not shown here use it"
SHOWN = {
    "GetComputeRunningProcesses": [SimpleNamespace(pid=7, usedGpuMemory=2**30)],
    "GetGraphicsRunningProcesses": [
        SimpleNamespace(pid=7, usedGpuMemory=2**30),  # it computes and draws
        SimpleNamespace(pid=8, usedGpuMemory=None),
    ],
}
HELD = {"GetMemoryInfo": SimpleNamespace(total=140 * 2**30, free=137 * 2**30)}


@pytest.mark.parametrize(
    ("percent", "answers", "outcome", "value"),
    [
        (0, {}, "ok", "0% in use, 139 GiB of 140 GiB of memory free"),
        (None, {}, "ok", "139 GiB of 140 GiB of memory free"),
        (None, SHOWN, "warning", "139 GiB of 140 GiB of memory free: 7 (1.00 GiB), 8"),
        (40, {}, "warning", f"40% in use, 139 GiB of 140 GiB of memory free; {UNSEEN}"),
        (0, HELD, "warning", f"0% in use, 137 GiB of 140 GiB of memory free; {UNSEEN}"),
    ],
)
def test_processes(
    machine: Machines, percent: int | None, answers: dict[str, Any], outcome: str, value: str
) -> None:
    """Others on the GPU hurt, also those whose ids a container does not see."""
    if percent is not None:
        answers = {**answers, "GetUtilizationRates": used(percent)}
    assert of_gpu(machine, gpus.processes, **answers)[:2] == (outcome, value)


def test_a_gpu_that_tells_nothing_is_unknown(machine: Machines) -> None:
    """Also one whose library lacks the functions."""
    (gpu,) = machine(library=FakeNvml(FakeGpu(answers={"nvmlDeviceGetMemoryInfo": None}))).gpus
    outcomes = {check.__name__: found_by(check, gpu).outcome for check in checks(gpus)}
    assert outcomes == {**dict.fromkeys(outcomes, "unknown"), "mig": "ok"}


@pytest.mark.slow
def test_only_visible_gpus_are_examined(machine: Machines) -> None:
    """What happens on the others is not ours; a lost one does not shift the numbers."""
    nvml = FakeNvml(FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b"), FakeGpu(uuid="GPU-c"))
    nvml.gpus = (nvml.gpus[0], None, nvml.gpus[2])
    shown = machine(library=nvml, environ={"CUDA_VISIBLE_DEVICES": "2,1"})
    assert [gpu.index for gpu in shown.gpus] == [2]
    devices = {f.device for f in examine(shown) if f.name.startswith("gpu_") and f.device}
    assert devices == {"GPU 2 (NVIDIA H200)"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("visible", "outcome"), [("1", "warning"), ("0,1", "warning"), ("0", "ok")]
)
def test_lost_gpu_is_a_warning_where_it_is_visible(
    machine: Machines, visible: str, outcome: str
) -> None:
    """It has fallen off the bus: no check of its own can examine it."""
    nvml = FakeNvml(FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b"))
    nvml.gpus = (nvml.gpus[0], None)
    found = found_by(
        software.driver, machine(library=nvml, environ={"CUDA_VISIBLE_DEVICES": visible})
    )
    assert (found.outcome, "no answer of GPU 1" in found.value) == (outcome, outcome == "warning")


@pytest.mark.slow
def test_a_machine_without_driver_lacks_nothing(machine: Machines, write: Write) -> None:
    """A CPU is measured as it is; a driver without its library is unknown."""
    found = found_by(software.driver, machine())
    assert (found.outcome, found.value) == ("ok", "no NVIDIA driver")
    assert found_by(software.architectures, machine()).outcome == "ok"
    assert found_by(software.nccl, machine({"nccl": None})).outcome == "ok"
    assert found_by(software.gpu_links, machine()).outcome == "ok"
    write("proc/driver/nvidia/version", "NVRM version: 580")
    found = found_by(software.driver, machine())
    assert (found.outcome, found.advice) == ("unknown", "pip install 'pytest-gpubench[gpu]'")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("torch", "cuda", "outcome", "value"),
    [
        ({}, 13000, "ok", "580.65.06, CUDA 13.0; torch 2.11.0+cu130 for CUDA 13.0"),
        ({"cuda": "13.2"}, 13000, "ok", "torch 2.11.0+cu130 for CUDA 13.2"),
        ({}, 12090, "warning", "580.65.06, CUDA 12.9; torch 2.11.0+cu130 needs CUDA 13"),
        ({"cuda": None}, 13000, "warning", "torch 2.11.0+cu130 was built without CUDA"),
        ({"devices": 0, "problem": "no"}, 13000, "warning", "2.11.0+cu130 finds no device: no"),
    ],
)
def test_driver(
    machine: Machines, torch: dict[str, Any], cuda: int, outcome: str, value: str
) -> None:
    """A driver runs what was built for its major version of CUDA."""
    nvml = FakeNvml(FakeGpu(), nvmlSystemGetCudaDriverVersion_v2=cuda)
    found = found_by(software.driver, machine(torch, library=nvml))
    assert (found.outcome, found.value.endswith(value)) == (outcome, True)


@pytest.mark.slow
def test_a_torch_that_cannot_be_imported_is_one_line(machine: Machines) -> None:
    """The last line of what its process wrote; other checks of torch are unknown."""
    broken = machine(
        library=FakeNvml(FakeGpu()),
        torch_command=(sys.executable, "-c", "raise OSError('libcudart.so.13: cannot open')"),
    )
    found = found_by(software.driver, broken)
    said = "torch cannot be examined: OSError: libcudart.so.13: cannot open"
    assert (found.outcome, found.value) == ("warning", f"580.65.06, CUDA 13.0; {said}")
    assert {f.name: f.value for f in examine(broken)}["nccl"] == said


@pytest.mark.parametrize(
    ("environ", "examined"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({}, [0, 1]),
    ],
)
def test_all_of_different_gpus_are_examined_unless_their_order_is_stated(
    machine: Machines, environ: dict[str, str], examined: list[int]
) -> None:
    """CUDA's number 0 is the fastest one, which need not be NVML's."""
    nvml = FakeNvml(FakeGpu(name="NVIDIA T4", uuid="GPU-a"), FakeGpu(uuid="GPU-b"))
    assert [gpu.index for gpu in machine(library=nvml, environ=environ).gpus] == examined


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "known", "outcome"),
    [
        ((9, 0), ["sm_80", "sm_90"], "ok"),
        ((8, 9), ["sm_80", "sm_90"], "ok"),
        ((9, 0), ["sm_90a"], "ok"),
        ((10, 3), ["sm_100a"], "warning"),
        ((10, 3), ["sm_100f"], "ok"),
        ((10, 0), ["sm_90", "compute_90"], "warning"),
        ((12, 0), ["sm_80", "sm_100"], "warning"),
        ((8, 0), ["sm_86"], "warning"),
        ((9, 0), [], "unknown"),
        (None, ["sm_90"], "unknown"),
    ],
)
def test_architectures(
    machine: Machines, capability: tuple[int, int] | None, known: list[str], outcome: str
) -> None:
    """Kernels run on later GPUs of their major version; source is compiled for any later one."""
    fake = FakeGpu(answers={"nvmlDeviceGetCudaComputeCapability": capability})
    found = found_by(
        software.architectures, machine({"architectures": known}, library=FakeNvml(fake))
    )
    assert found.outcome == outcome


@pytest.mark.slow
def test_several_gpus_need_nccl(machine: Machines, tmp_path: Path) -> None:
    """Else ranks communicate over main memory; a torch that fails is asked once."""
    pair = FakeNvml(FakeGpu(), FakeGpu())
    assert found_by(software.nccl, machine(library=pair)).outcome == "ok"
    assert found_by(software.nccl, machine({"nccl": None}, library=pair)).outcome == "warning"
    log = tmp_path / "log"
    script = f"open({str(log)!r}, 'a').write('x'); raise SystemExit('no')"
    broken = machine(library=FakeNvml(FakeGpu()), torch_command=(sys.executable, "-c", script))
    assert "unknown" in {finding.outcome for finding in examine(broken)}
    assert log.read_text() == "x"


@pytest.mark.parametrize(
    ("status", "outcome", "value"),
    [
        ({0: 0, 2: 0}, "ok", "1 pair: 1 read each other's memory, 1 by NVLink"),
        ({0: 0, 2: 5}, "ok", "1 pair: 1 read each other's memory, 0 by NVLink"),
        ({0: 1, 2: 1}, "warning", f"1 pair: 0 read each other's memory, 0 by NVLink; {CUT}"),
        ({}, "unknown", "the driver does not tell"),
    ],
)
def test_gpu_links(machine: Machines, status: dict[int, int], outcome: str, value: str) -> None:
    """Two GPUs that cannot read each other's memory hurt."""
    answers = {"nvmlDeviceGetP2PStatus": lambda _, kind: status[kind]} if status else {}
    pair = FakeNvml(FakeGpu(answers=answers), FakeGpu(answers=answers))
    found = found_by(software.gpu_links, machine(library=pair))
    assert (found.outcome, found.value) == (outcome, value)
