"""A gang of one and torchrun of one exchange over NCCL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = [pytest.mark.gpu_sessions, pytest.mark.own_process]

EXCHANGE = """
import pytest, torch
from torch import distributed

@pytest.mark.gpubench(ranks="any")
def test_exchange(gpubench, torch_device, process_group):
    assert distributed.get_backend() == "nccl"
    values = torch.arange(1024.0, device=torch_device)
    distributed.all_reduce(values)
    assert values.tolist() == [float(i) for i in range(1024)]
    gpubench(lambda: distributed.all_reduce(values), samples=1)
"""


@pytest.mark.parametrize(
    ("arguments", "options"), [(["--isolate"], {}), ([], {"ranks": 1})], ids=["gang", "torchrun"]
)
def test_one_rank_exchanges_with_itself(
    project: Project, arguments: list[str], options: dict[str, Any]
) -> None:
    """The exchange is measured."""
    project.write("test_it.py", EXCHANGE)
    ended = project.run("--device=cuda", *arguments, **options)
    assert ended.code == 0, ended.out + ended.err
    assert list(ended.outcomes.values()) == ["measured"]
