"""What garbage collections leave out."""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.bench.hooks import BenchmarkHooks
from gpubench_plugin.launchers.context import STATE
from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow


class Circle:
    """An object that only a garbage collection frees."""

    def __init__(self) -> None:
        self.itself = self


def launcher() -> BenchmarkHooks:
    config: Any = SimpleNamespace()
    return BenchmarkHooks(config, is_replaceable=False)


@pytest.fixture
def runs() -> Iterator[BenchmarkHooks]:
    gc.unfreeze()
    yield launcher()
    gc.unfreeze()


def begin(runs: BenchmarkHooks, file: str, *, benchmark: bool = True) -> None:
    item: Any = SimpleNamespace(path=file, stash={STATE: SimpleNamespace()} if benchmark else {})
    next(runs.pytest_runtest_protocol(item))


def end_fixture(runs: BenchmarkHooks, scope: str) -> None:
    ended: Any = SimpleNamespace(scope=scope)
    runs.pytest_fixture_post_finalizer(ended)


def left_out(runs: BenchmarkHooks) -> tuple[Circle, Callable[[], Circle | None]]:
    """An object that is alive when a benchmark begins, and how to see whether it still is."""
    circle = Circle()
    begin(runs, "a.py")
    return circle, weakref.ref(circle)


def test_device_that_refuses_to_tell_its_memory_ends_no_session(
    runs: BenchmarkHooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context lost by an ordinary test is reported by the next benchmark, not by the launcher."""

    def refuse() -> int:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", refuse)
    begin(runs, "a.py")


def test_what_is_there_before_a_benchmark_is_left_out(runs: BenchmarkHooks) -> None:
    """A collection looks through what came later only, however many came; garbage is freed."""
    begin(runs, "a.py", benchmark=False)
    assert gc.get_freeze_count() == 0
    for _ in range(3):
        later = Circle()
        gone = weakref.ref(later)
        del later
        begin(runs, "a.py")
        assert gone() is None
        assert gc.get_freeze_count() > 1000
        assert len(gc.get_objects()) < 1000


@pytest.mark.parametrize(
    "scope", shown("session", "function", exhaustively=["class", "module", "package"])
)
def test_what_shared_fixtures_held_is_collected(runs: BenchmarkHooks, scope: str) -> None:
    """It was left out while benchmarks shared it, and is looked at when the fixture has ended.

    Fixtures of one test end after every test: then each would cost as much as all before it.
    """
    shared, gone = left_out(runs)
    begin(runs, "a.py")
    end_fixture(runs, scope)
    del shared
    begin(runs, "a.py")
    assert (gone() is None) == (scope != "function")


def test_what_was_left_out_is_collected_with_the_next_file_or_after_the_session(
    runs: BenchmarkHooks,
) -> None:
    """A cycle that was alive is kept no longer than that."""
    for end in (lambda: begin(runs, "b.py"), lambda: next(runs.pytest_sessionfinish())):
        kept, gone = left_out(runs)
        del kept
        gc.collect()
        assert gone() is not None
        end()
        gc.collect()
        assert gone() is None


def test_variables_of_a_failed_test_are_not_left_out(runs: BenchmarkHooks) -> None:
    """Else the last error, which pytest keeps until the next call, would keep the test's model."""
    model = Circle()
    gone = weakref.ref(model)
    sys.last_value = ValueError(model)
    del model
    begin(runs, "a.py")
    assert gone() is None


def test_what_a_cache_has_let_go_of_is_freed_when_memory_grew(runs: BenchmarkHooks) -> None:
    """A model in a cycle of references that was left out while a cache held it is not kept."""
    begin(runs, "a.py")
    cached = Circle()
    cached.weights = bytearray(b"1" * (64 << 20))
    gone = weakref.ref(cached)
    begin(runs, "a.py")
    cached = Circle()
    cached.weights = bytearray(b"1" * (64 << 20))
    begin(runs, "a.py")
    assert gone() is None
