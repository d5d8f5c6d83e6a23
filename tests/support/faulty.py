"""Benchmarks of two ranks with a fault each, and after each fault one that is healthy."""

from __future__ import annotations

import re
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

_FAULTS = """
def test_sigkill(gpubench, process_group):
    log(gpubench)
    meet()
    if RANK == 1: os.kill(os.getpid(), signal.SIGKILL)
    meet()

def test_forked(gpubench, process_group):
    meet()  # rank 0 is in its test when rank 1 dies
    if RANK == 1:
        if os.fork(): os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(20)  # it holds what rank 1 had open
        os._exit(0)
    meet()

def test_segfault(gpubench, process_group):
    if RANK == 1: ctypes.string_at(0)
    meet()

def test_exit_3(gpubench, process_group):
    log(gpubench)
    if RANK == 0: os._exit(3)
    meet()

def test_kills_zero(gpubench, process_group):
    if RANK == 0: os.kill(os.getpid(), signal.SIGKILL)
    meet()

def test_raise(gpubench, process_group):
    if RANK == 1: raise ValueError("no luck")
    meet()

def test_left_out(gpubench, process_group):
    if RANK == 1: meet()

@pytest.mark.gpubench(ranks=2, timeout_s=3)
def test_endless(gpubench):
    log(gpubench)
    while True: pass

def test_skips_early(gpubench, process_group):
    if RANK == 1: pytest.skip("no data here")
    meet()

def test_oom_on_one(gpubench, process_group):
    if RANK == 0: raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB")
    meet()

if RANK != 1:
    def test_absent(gpubench): gpubench(lambda: None)
if RANK == 1:
    def test_extra(gpubench): gpubench(lambda: None)

def test_all_raise(gpubench, process_group):
    calls = iter(range(15))
    def step():
        meet()
        if next(calls) == 9: raise Mute
    gpubench(step)

def test_misconfigured(gpubench, process_group):
    from gpubench_plugin import UsageProblem
    if RANK == 1: raise UsageProblem("data.path: not on this host")

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

def test_half_done(gpubench, process_group):
    gpubench(meet)
    if RANK == 1: dist.barrier(async_op=True)

def test_left_state(gpubench, process_group):
    gpubench(meet)
    dist.new_group()
    os.environ.update(RANK="7", WORLD_SIZE="9", MASTER_PORT="1")
    os.chdir("/")
    torch.set_default_dtype(torch.float64)

def test_destroyed(gpubench, process_group):
    gpubench(meet)
    dist.destroy_process_group()

def test_caught(gpubench, process_group):
    with pytest.raises(ZeroDivisionError):
        gpubench(lambda: 1 / 0)

def test_raise_after(gpubench, process_group):
    gpubench(meet)
    assert RANK == 0

def test_fragile(gpubench, process_group, fragile): gpubench(meet)

def test_one_sided(process_group, one_sided, gpubench): gpubench(meet)

def test_skips(gpubench, process_group):
    if RANK == 1: pytest.skip("not here")

def test_wrong_call(gpubench, process_group): gpubench(meet, samples=-1)

def test_oom_on_both(gpubench, process_group):
    raise torch.OutOfMemoryError("Tried to allocate 4.00 GiB")
"""
_SOURCES = {
    name: source
    for source in _FAULTS.split("\n\n")
    for name in re.findall(r"def test_(\w+)", source)[:1]
}


def module(faults: Iterable[str], ddp: Collection[str] | None = None) -> str:
    """A test module with those `faults`, and a healthy benchmark after each.

    After those in `ddp`, by default all, it uses DDP, else it reduces the gradients itself: a
    process that makes its first DDP imports torch's compiler, 1.5 s of processor time.
    """
    parts = [_BEGINNING]
    for number, fault in enumerate(("", *faults)):
        really = ddp is None or fault in ddp
        source = f"\n{_SOURCES[fault]}\n" if fault else ""
        parts += [source, _AFTER.format(name=_after(number), really=really)]
    return "".join(parts)


def logged(fault: str) -> int:
    """How many steps a benchmark logs before its fault."""
    return 900 * ("log(gpubench)" in _SOURCES.get(fault, ""))


def with_healthy(expected: Mapping[str, _T], healthy: _T) -> dict[str, _T]:
    """What is `expected` of a module with those faults, by the names of its benchmarks."""
    found = {_after(0): healthy}
    for number, (name, fault) in enumerate(expected.items(), 1):
        found |= {name: fault, _after(number): healthy}
    return found


def _after(number: int) -> str:
    return f"good_{number}"
