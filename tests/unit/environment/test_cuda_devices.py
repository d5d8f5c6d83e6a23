"""CUDA devices of this process: by NVML, by a child process, from a CUDA that has started."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from gpubench_plugin.core.errors import MissingPackage, UsageProblem
from gpubench_plugin.environment import cuda_devices, devices
from tests.support.fake_gpus import GIB, CudaStartedError, FakeGpu, FakeNvml, install

UUIDS = ["GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3"]


def gpus(*names: str) -> list[FakeGpu]:
    """One of each name, with the UUIDs in their order."""
    return [FakeGpu(name=name, uuid=uuid) for name, uuid in zip(names, UUIDS, strict=False)]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Scripts given to a child process, which then knows one device."""
    scripts: list[str] = []

    def answer(command: list[str]) -> list[dict[str, object]]:
        scripts.append(command[-1])
        return [{"name": "by the child", "memory_bytes": GIB}]

    monkeypatch.setattr(cuda_devices, "facts_of", answer)
    return scripts


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("1, 2", [1, 2]),
        ("0,7,1", None),
        ("1,1", None),
        ("GPU-cccc-3,0", [2, 0]),
        ("GPU-c", None),
        ("NoDevFiles", None),
        ("0,MIG-7", None),
    ],
)
def test_visible_devices_are_those_of_the_variable(
    variable: str | None, expected: list[int] | None
) -> None:
    """Indices and UUIDs; CUDA judges any other form, and what is wrong or repeated."""
    assert cuda_devices.visible_indices(variable, UUIDS) == expected


def test_devices_come_from_nvml(monkeypatch: pytest.MonkeyPatch, child: list[str]) -> None:
    """Name, usable and free memory of the visible ones; neither CUDA nor a child starts."""
    first, second = gpus("NVIDIA H200", "NVIDIA H200")
    second.used = 39 * GIB
    install(monkeypatch, FakeNvml(first, second))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (device,) = cuda_devices.visible()
    assert device == cuda_devices.CudaDevice(
        name="NVIDIA H200", memory_bytes=139 * GIB, free_bytes=100 * GIB
    )
    found = devices.find("auto")
    assert (found.torch_name, found.memory_gib, found.free_gib) == ("cuda:0", 139, 100)
    assert child == []


def test_indices_select_among_the_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index, else the local rank; one too many is refused with the last there is."""
    install(monkeypatch, FakeNvml(*gpus("NVIDIA L4", "NVIDIA L4")))
    found = devices.find("cuda", local_rank=1)
    assert (found.torch_name, found.device_count) == ("cuda:1", 2)
    assert devices.find("cuda:1").torch_name == "cuda:1"
    with pytest.raises(UsageProblem, match=r"^--device=cuda:2: this rank has no cuda:2; the last "):
        devices.find("cuda:2")


DIFFERENT = FakeNvml(*gpus("NVIDIA L4", "NVIDIA H200"))


@pytest.mark.parametrize(
    ("nvml", "environ"),
    [
        (None, {}),
        (FakeNvml(nvmlInit=None), {}),
        (FakeNvml(FakeGpu(), nvmlSystemGetCudaDriverVersion_v2=12090), {}),
        (FakeNvml(FakeGpu(answers={"nvmlDeviceGetMigMode": (1, 1)})), {}),
        (FakeNvml(FakeGpu(answers={"nvmlDeviceGetMemoryInfo": None})), {}),
        (DIFFERENT, {}),
        (DIFFERENT, {"CUDA_VISIBLE_DEVICES": "1"}),
        (FakeNvml(FakeGpu()), {"CUDA_VISIBLE_DEVICES": "MIG-7"}),
        (FakeNvml(FakeGpu(uuid="GPU-71")), {"CUDA_VISIBLE_DEVICES": "GPU-7"}),
        (FakeNvml(FakeGpu()), {"CUDA_VISIBLE_DEVICES": "0x1"}),
    ],
    ids=[
        *("no package", "no library", "driver too old", "sliced", "no memory of its own"),
        *("different", "different, by index", "slice", "prefix", "odd form"),
    ],
)
def test_where_nvml_cannot_tell_a_child_asks_cuda(
    nvml: FakeNvml | None,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    child: list[str],
) -> None:
    """The order or the number of devices is CUDA's own: a process that ends asks for them, once."""
    install(monkeypatch, nvml)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    expected = (cuda_devices.CudaDevice(name="by the child", memory_bytes=GIB),)
    assert (cuda_devices.visible(), cuda_devices.visible()) == (expected, expected)
    assert child == [cuda_devices._CHILD]


@pytest.mark.parametrize(
    "environ",
    [{"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES": "GPU-aaaa-1,GPU-aabb-2"}],
)
def test_different_gpus_in_a_certain_order(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, child: list[str]
) -> None:
    """By the bus, or by their UUIDs, the order is that of NVML."""
    install(monkeypatch, DIFFERENT)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert [d.name for d in cuda_devices.visible()] == ["NVIDIA L4", "NVIDIA H200"]
    assert child == []


@pytest.mark.parametrize("is_built", [True, False])
def test_without_a_driver_nothing_is_started(
    is_built: bool, monkeypatch: pytest.MonkeyPatch, child: list[str]
) -> None:
    """A machine without GPU pays nothing for a torch that was built for CUDA."""
    install(monkeypatch, None)
    monkeypatch.setattr(cuda_devices, "_has_nvidia_driver", lambda: not is_built)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: is_built)
    assert (cuda_devices.visible(), child) == ((), [])


def test_a_cuda_that_has_started_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to be spared any more."""
    install(monkeypatch, None)
    properties = SimpleNamespace(name="NVIDIA T4", total_memory=15 * GIB)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    expected = cuda_devices.CudaDevice(name="NVIDIA T4", memory_bytes=15 * GIB)
    assert cuda_devices.visible() == (expected,)


@pytest.mark.slow
def test_the_child_is_a_whole_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without CUDA the real child finds no device."""
    install(monkeypatch, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cuda_devices.visible() == ()


@pytest.mark.slow
def test_a_child_that_fails_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of its error, and how to go on without the devices."""
    install(monkeypatch, None)
    script = "import sys; sys.exit('Traceback\\nRuntimeError: broken driver')"
    monkeypatch.setattr(cuda_devices, "_CHILD", script)
    said = r"^--device=cuda: .* fails: RuntimeError: broken driver; --device=cpu measures"
    with pytest.raises(UsageProblem, match=said):
        devices.find("auto")


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (None, "torch is not installed"),
        (ModuleType("torch"), "<module 'torch'> is not the library torch"),
        (MagicMock(), "<MagicMock .*> is not the library torch"),
    ],
)
def test_without_the_library_the_message_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None, problem: str
) -> None:
    """Also where something else has its name, as a project's own module or a stand-in."""
    monkeypatch.setitem(sys.modules, "torch", module)
    with pytest.raises(MissingPackage, match=rf"{problem}: pip install '.*\[torch\]'"):
        devices.find("auto")


@pytest.mark.parametrize("kind", [OSError, RuntimeError, SystemExit])
def test_a_torch_that_cannot_be_imported_is_one_message(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """A library that it needs is not installed, or it ends in any other way."""

    class Broken(MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "torch":
                raise kind("libcudart.so.13: cannot open")

    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(UsageProblem, match=f"torch cannot be imported: {kind.__name__}: libcudart"):
        devices.find("auto")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("builds", "advice"),
    [
        ({}, "is built without CUDA and ROCm: for a GPU choose a build at https://pytorch.org/"),
        ({"hip": "6.4"}, "finds no such device (does nvidia-smi, or rocm-smi, show one?)"),
    ],
)
def test_without_cuda_the_message_says_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, builds: dict[str, str], advice: str
) -> None:
    """Another build of torch, or a driver that sees the device."""
    install(monkeypatch, FakeNvml())
    monkeypatch.setattr(torch.version, "cuda", builds.get("cuda"))
    monkeypatch.setattr(torch.version, "hip", builds.get("hip"))
    with pytest.raises(UsageProblem) as error:
        devices.find("cuda")
    assert f"{advice}" in str(error.value)
    assert str(error.value).endswith("; available: cpu")


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        *(("gpu", "cuda"), ("rocm", "cuda"), ("hip", "cuda"), ("CUDA", "cuda")),
        *(("gpu:1", "cuda"), ("metal", "mps"), ("tpu", ""), ("cdua", "cuda")),
    ],
)
def test_other_words_for_devices_are_answered_by_meaning(name: str, meaning: str) -> None:
    """Not by spelling, in which gpu is near to cpu and xpu."""
    with pytest.raises(UsageProblem) as error:
        devices.find(name)
    hint = meaning and f" (did you mean {meaning!r}?)"
    assert f"unknown {name!r}{hint}; allowed: auto, cuda" in str(error.value)


def test_a_message_names_what_is_there_without_starting_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also the list of available devices is made without CUDA."""
    install(monkeypatch, FakeNvml(FakeGpu()))
    with pytest.raises(UsageProblem, match=r"supports no such device; available: cuda, cpu$"):
        devices.find("xpu")
    with pytest.raises(CudaStartedError):
        torch.cuda.is_available()
    assert sys.modules["pynvml"].gpus
