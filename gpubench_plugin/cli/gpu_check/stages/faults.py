"""Out of memory and a lost context, each with a healthy benchmark after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.stage import Session, StageRun

FEW_STEPS: Final = ("--gpubench-set=measure.by=steps", "--gpubench-set=measure.steps=10")
"""Of benchmarks whose outcome counts, not their numbers."""

BYTES: Final = 1 << 50
"""More than any device, or address space, has."""

_BEFORE: Final = """
import pytest, torch

pytestmark = pytest.mark.gpubench

def product(device):
    matrix = torch.eye(64, device=device)
    return lambda: matrix @ matrix

def test_before(gpubench, torch_device):
    gpubench(product(torch_device), samples=1)

"""
_AFTER: Final = """

def test_after(gpubench, torch_device):
    if torch_device.type == "cuda":
        assert torch.cuda.memory_allocated(torch_device) <= 64 * 2**20
    gpubench(product(torch_device), samples=1)
"""
MEMORY: Final = """
def test_faulty(gpubench, torch_device):
    held = []
    def step():
        held.append(torch.ones({held}, device=torch_device))
        return torch.empty({bytes}, dtype=torch.uint8, device=torch_device)
    gpubench(step)
"""
CONTEXT: Final = """
def test_faulty(gpubench, torch_device):
    values = torch.zeros(1, device=torch_device)
    index = torch.tensor([5], device=torch_device)
    gpubench(lambda: values[index])
"""
"""An index beyond the end: an assertion of the kernel fails, which ends the context."""


def out_of_memory(run: StageRun, *, bytes: int = BYTES, held: int = 1 << 28) -> None:
    """A step that needs too much memory is ``oom``, and what it held is free afterwards."""
    session = _session(run, "memory", MEMORY.format(bytes=bytes, held=held))
    run.check("exit code", session.code, "equal", 1)
    _check(run, session, "one process", ("measured", "oom", "measured"))


def lost_context(run: StageRun, *, fault: str = CONTEXT) -> None:
    """It ends the session where there is one process, and costs one benchmark in a gang."""
    alone = _session(run, "alone", fault)
    run.check("one process: exit code", alone.code, "equal", 1)
    _check(run, alone, "one process", ("measured", "crashed", "not_measured"))
    gang = _session(run, "gang", fault, "--isolate")
    run.check("gang: exit code", gang.code, "equal", 1)
    _check(run, gang, "gang", ("measured", "crashed", "measured"))


def _session(run: StageRun, name: str, fault: str, *options: str) -> Session:
    folder = run.project(name, _BEFORE + fault + _AFTER)
    return run.pytest(name, *options, *FEW_STEPS, cwd=folder)


def _check(run: StageRun, session: Session, where: str, expected: tuple[str, ...]) -> None:
    run.fact(**{where: list(session.outcomes)})
    names = ("before", "with the fault", "after")
    padded = (*session.outcomes, *[""] * len(names))
    for name, outcome, target in zip(names, padded, expected, strict=False):
        run.check(f"{where}: the benchmark {name} is {target}", outcome == target, "equal", 1)
