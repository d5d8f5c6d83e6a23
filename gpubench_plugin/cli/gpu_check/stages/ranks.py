"""A gang of one and torchrun of one, with an exchange over the device's own backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.cli.gpu_check.stages.faults import FEW_STEPS

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.stage import StageRun

_BACKENDS: Final = {"cuda": "nccl", "cpu": "gloo"}

EXCHANGE: Final = """
import pytest, torch
from torch import distributed

@pytest.mark.gpubench(ranks="any")
def test_exchange(gpubench, torch_device, process_group):
    assert distributed.get_backend() == "{backend}"
    values = torch.arange(1024.0, device=torch_device)
    distributed.all_reduce(values)
    assert values.tolist() == [float(i) for i in range(1024)]
    gpubench(lambda: distributed.all_reduce(values), samples=1)
"""


def ranks(run: StageRun, *, backend: str = "") -> None:
    """One rank exchanges with itself, in a gang and under torchrun."""
    source = EXCHANGE.format(backend=backend or _BACKENDS[run.device])
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=1", "--standalone", "-m", "pytest")
    for name, launcher, options in (
        ("gang", ("-m", "pytest"), ("--isolate",)),
        ("torchrun", torchrun, ()),
    ):
        folder = run.project(name, source)
        session = run.pytest(
            name,
            *(*options, *FEW_STEPS),
            cwd=folder,
            launcher=launcher,
        )
        is_measured = session.outcomes == ("measured",)
        run.fact(**{name: {"code": session.code, "outcomes": list(session.outcomes)}})
        run.check(f"{name}: exit code", session.code, "equal", 0)
        run.check(f"{name}: the exchange is measured", is_measured, "equal", 1)
