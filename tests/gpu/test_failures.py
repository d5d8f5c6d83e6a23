"""What goes wrong on a device costs one benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

pytestmark = [pytest.mark.gpu_sessions, pytest.mark.own_process]

BEGINNING = """
import ctypes
import pytest, torch

def out_of_bounds(device):
    # The kernel asserts some time after this returns.
    torch.ones(8, device=device)[torch.tensor([99], device=device)]

def test_before(gpubench, torch_device):
    values = torch.ones(2**20, device=torch_device)
    gpubench(lambda: values.mul_(1))
"""
AFTER = """
def test_after(gpubench, torch_device):
    assert torch.cuda.memory_allocated(torch_device) < 2**26
    values = torch.ones(2**20, device=torch_device)
    gpubench(lambda: values.mul_(1))
"""
LOSSES = {
    "step": "gpubench(lambda: out_of_bounds(torch_device))",
    "end": "gpubench(lambda: None); out_of_bounds(torch_device)",
    "caught": """
    with pytest.raises(torch.AcceleratorError):
        out_of_bounds(torch_device)
        torch.cuda.synchronize()
""",
    "library": """
    torch.ones(8, device=torch_device)[torch.tensor([99], device=torch_device)]
    matrix = torch.ones(64, 64, device=torch_device)
    gpubench(lambda: matrix @ matrix)
""",
}
LACKS = {
    "allocator": """
    held = []
    def step():
        held.append(torch.ones(2**28, device=torch_device))
        return torch.empty(2**45, device=torch_device)
    gpubench(step)
""",
    "runtime": "gpubench(lambda: torch.empty(2**45, pin_memory=True))",
    "full": """
    free, _ = torch.cuda.mem_get_info(torch_device)
    torch.cuda.empty_cache()
    filling = torch.empty(free - 2**21, dtype=torch.uint8, device=torch_device)
    generator = torch.randn(2**26, device=torch_device)
    gpubench(lambda: generator)
""",
}


def run(project: Project, body: str, *arguments: str) -> Run:
    """A session with that benchmark between two that are well."""
    faulty = f"def test_faulty(gpubench, torch_device):\n    {body}\n"
    project.write("test_it.py", BEGINNING + faulty + AFTER)
    ended = project.run("--device=cuda", *arguments)
    assert ended.code == 1, ended.out + ended.err
    assert "INTERNALERROR" not in ended.out + ended.err
    return ended


@pytest.mark.parametrize("body", LOSSES.values(), ids=LOSSES)
def test_lost_context_ends_a_session_of_one_process(project: Project, body: str) -> None:
    """The benchmark that lost it is ``crashed``, once, and the next one is not run."""
    ended = run(project, body)

    assert list(ended.outcomes.values()) == ["measured", "crashed", "not_measured"], ended.out
    reason = ended.summary["benchmarks"][1]["reason"]
    assert reason.startswith("CUDA context lost: AcceleratorError: CUDA error: ")
    assert "so the session ends. With --isolate" in ended.out
    assert ended.out.count("ERROR at ") + ended.out.count("FAILED test_it") == 1


@pytest.mark.parametrize("body", LOSSES.values(), ids=LOSSES)
def test_lost_context_costs_one_isolated_benchmark(project: Project, body: str) -> None:
    """The next one has a context of its own, with nothing allocated."""
    ended = run(project, body, "--isolate")

    assert list(ended.outcomes.values()) == ["measured", "crashed", "measured"], ended.out


@pytest.mark.parametrize("body", LACKS.values(), ids=LACKS)
def test_lack_of_memory_costs_one_benchmark(project: Project, body: str) -> None:
    """In the same process the next one has the device's memory again."""
    ended = run(project, body)

    assert list(ended.outcomes.values()) == ["measured", "oom", "measured"], ended.out
