"""Benchmarks of two ranks with a fault each, and after each fault one that is healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_T = TypeVar("_T")

_BEGINNING = """
import ctypes, os, pathlib, signal, time
from datetime import timedelta
import pytest, torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.gpubench(ranks=2)
RANK = int(os.environ.get("RANK", "-1"))

def meet(): dist.all_reduce(torch.zeros(1))

def log(gpubench):
    for step in range(900): gpubench.log(step=step, loss=1.0)

def healthy(gpubench, really):
    assert os.environ["RANK"] == str(RANK) and torch.get_default_dtype() is torch.float32
    total = torch.full((3,), RANK + 1.0)
    dist.all_reduce(total)
    assert total.tolist() == [3.0] * 3
    model = torch.nn.Linear(4, 2)
    wrapped = DistributedDataParallel(model) if really else model
    def step():
        wrapped(torch.ones(8, 4)).sum().backward()
        if not really:
            for parameter in model.parameters(): dist.all_reduce(parameter.grad)
    gpubench(step)

class Mute(Exception):
    def __str__(self): raise ValueError("no text")

@pytest.fixture
def one_sided():
    if RANK == 1: raise RuntimeError("only here")
@pytest.fixture
def fragile():
    yield
    assert False, "not put away"
"""
_AFTER = """
def test_{name}(gpubench, process_group): healthy(gpubench, {really})
"""

ALL_RAISE = """
def test_all_raise(gpubench, process_group):
    calls = iter(range(15))
    def step():
        meet()
        if next(calls) == 9: raise Mute
    gpubench(step)
"""
MISCONFIGURED = """
def test_misconfigured(gpubench, process_group):
    from gpubench_plugin import UsageProblem
    if RANK == 1: raise UsageProblem("data.path: not on this host")
"""
GROUP_TIMEOUT = """
def test_group_timeout(gpubench, process_group):
    # Rank 1 comes only once rank 0 has failed: in whatever order a busy machine runs them.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=0.5))
    failed = pathlib.Path("rank 0 failed")
    while RANK == 1 and not failed.exists(): time.sleep(0.01)
    try:
        meet()
    finally:
        failed.touch() if RANK == 0 else failed.unlink()
    gpubench(meet)
"""
HALF_DONE = """
def test_half_done(gpubench, process_group):
    gpubench(meet)
    if RANK == 1: dist.barrier(async_op=True)
"""
LEFT_STATE = """
def test_left_state(gpubench, process_group):
    gpubench(meet)
    dist.new_group()
    os.environ.update(RANK="7", WORLD_SIZE="9", MASTER_PORT="1")
    os.chdir("/")
    torch.set_default_dtype(torch.float64)
"""
DESTROYED = """
def test_destroyed(gpubench, process_group):
    gpubench(meet)
    dist.destroy_process_group()
"""
CAUGHT = """
def test_caught(gpubench, process_group):
    with pytest.raises(ZeroDivisionError):
        gpubench(lambda: 1 / 0)
"""
RAISE_AFTER = """
def test_raise_after(gpubench, process_group):
    gpubench(meet)
    assert RANK == 0
"""
FRAGILE = """
def test_fragile(gpubench, process_group, fragile): gpubench(meet)
"""
ONE_SIDED = """
def test_one_sided(process_group, one_sided, gpubench): gpubench(meet)
"""
SKIPS = """
def test_skips(gpubench, process_group):
    if RANK == 1: pytest.skip("not here")
"""
WRONG_CALL = """
def test_wrong_call(gpubench, process_group): gpubench(meet, samples=-1)
"""
OOM_ON_BOTH = """
def test_oom_on_both(gpubench, process_group):
    raise torch.OutOfMemoryError("Tried to allocate 4.00 GiB")
"""


def module(faults: Iterable[str], ddp: Collection[str] | None = None) -> str:
    """A test module with those `faults`, and a healthy benchmark after each.

    After those in `ddp`, by default all, it uses DDP, else it reduces the gradients itself: a
    process that makes its first DDP imports torch's compiler, 1.5 s of processor time.
    """
    parts = [_BEGINNING]
    for number, fault in enumerate(("", *faults)):
        really = ddp is None or fault in ddp
        parts += [fault, _AFTER.format(name=_after(number), really=really)]
    return "".join(parts)


def with_healthy(expected: Mapping[str, _T], healthy: _T) -> dict[str, _T]:
    """What is `expected` of a module with those faults, by the names of its benchmarks."""
    found = {_after(0): healthy}
    for number, (name, fault) in enumerate(expected.items(), 1):
        found |= {name: fault, _after(number): healthy}
    return found


def _after(number: int) -> str:
    return f"good_{number}"
