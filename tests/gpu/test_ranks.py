"""Ranks on a GPU: by a gang and by torchrun, alone over NCCL and two on one device over gloo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = [pytest.mark.gpu_sessions, pytest.mark.own_process]

EXCHANGE = """
import os, pathlib
import pytest, torch
from torch import distributed

def has_context(process):
    # A CUDA context maps the device's memory; NVML does not.
    files = pathlib.Path("/proc", f"{process}", "fd").iterdir()
    return "/dev/nvidia-uvm" in [os.readlink(file) for file in files if file.is_symlink()]

@pytest.mark.gpubench(ranks="any")
def test_exchange(gpubench, torch_device, process_group):
    size = distributed.get_world_size()
    assert distributed.get_backend() == ("nccl" if size == 1 else "gloo")
    values = torch.arange(1024.0, device=torch_device)
    distributed.all_reduce(values)
    assert values.tolist() == [size * float(i) for i in range(1024)]
    has_controller = size == 2 or "TORCHELASTIC_RUN_ID" not in os.environ
    if has_controller and distributed.get_rank() == 0:
        assert has_context(os.getpid())
        assert not has_context(os.getppid()), "the controller has a context"
    gpubench(lambda: distributed.all_reduce(values), samples=1)
"""
SHARED = "--distributed.share_device=true"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        pytest.param(["--isolate"], {}, id="gang"),
        pytest.param([], {"ranks": 1}, id="torchrun"),
        pytest.param(["--world-size=2", SHARED], {}, id="gang-of-two"),
        pytest.param([SHARED], {"ranks": 2}, id="torchrun-of-two"),
    ],
)
def test_ranks_exchange(project: Project, arguments: list[str], options: dict[str, Any]) -> None:
    """The exchange is measured, and no controller has a CUDA context."""
    project.write("test_it.py", EXCHANGE)
    ended = project.run("--device=cuda", *arguments, **options)
    assert ended.code == 0, ended.out + ended.err
    assert list(ended.outcomes.values()) == ["measured"]


def test_conftest_that_starts_cuda_is_refused_under_torchrun(project: Project) -> None:
    """Another process runs the tests of rank zero."""
    project.write("conftest.py", "import torch\ntorch.cuda.init()\n")
    project.write("test_it.py", EXCHANGE)
    ended = project.run("--device=cuda", SHARED, ranks=2)
    assert ended.code != 0
    assert "has initialized CUDA by the end of the collection" in ended.out + ended.err
    assert "Traceback" not in ended.out
