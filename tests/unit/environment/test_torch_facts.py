"""What a run records about torch, without starting CUDA."""

from __future__ import annotations

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
