"""What a run records about torch, without starting CUDA."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from gpubench_plugin.environment import system_facts
from tests.support.fake_gpus import CudaStartedError


def test_version_of_cudnn_is_read_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.backends.cudnn.version`` would ask every device for its capability."""

    def start() -> int:
        raise CudaStartedError

    library = SimpleNamespace(getVersionInt=lambda: 91900)
    monkeypatch.setattr(torch._C, "_cudnn", library, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "version", start)
    facts = system_facts._torch(torch)
    assert facts is not None
    assert facts["cudnn"] == 91900


@pytest.mark.parametrize("library", [None, SimpleNamespace()])
def test_torch_without_cudnn_has_no_version_of_it(
    library: SimpleNamespace | None,
) -> None:
    """A build without it lacks the module, or its function."""
    fake = ModuleType("torch")
    fake.__dict__["_C"] = SimpleNamespace(_cudnn=library)
    assert system_facts._cudnn_version(fake) is None


SESSION = """
import json, pathlib
from gpubench_plugin.environment import devices
from gpubench_plugin.environment.system_facts import collect
devices.find("cpu")
print(json.dumps(collect(pathlib.Path.cwd())["torch"]))
"""


@pytest.mark.slow
def test_torch_is_recorded_of_a_run_on_a_cpu() -> None:
    """Its device is known before any benchmark has imported torch; the version is compared."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION], capture_output=True, text=True, check=True
    )
    facts = json.loads(done.stdout)
    assert facts["version"] == str(torch.__version__)
    assert facts["threads"] > 0
