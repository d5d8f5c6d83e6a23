"""What garbage collections leave out."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cases import CASE
from gpubench_plugin.residents import Residents

if TYPE_CHECKING:
    from collections.abc import Iterator


class Circle:
    """An object that only a garbage collection frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def residents() -> Iterator[Residents]:
    gc.unfreeze()
    yield Residents()
    gc.unfreeze()


def begin(residents: Residents, file: str, *, benchmark: bool = True) -> None:
    item: Any = SimpleNamespace(path=file, stash={CASE: None} if benchmark else {})
    next(residents.pytest_runtest_protocol(item))


def test_what_is_there_before_the_first_benchmark_of_a_file_is_left_out(
    residents: Residents,
) -> None:
    """A collection then looks through what came later only; an ordinary test decides nothing."""
    begin(residents, "a.py", benchmark=False)
    assert gc.get_freeze_count() == 0
    begin(residents, "a.py")
    assert gc.get_freeze_count() > 1000
    assert len(gc.get_objects()) < 1000


def test_what_comes_later_is_collected(residents: Residents) -> None:
    """Within the file, too: nothing more is left out there."""
    begin(residents, "a.py")
    later = Circle()
    gone = weakref.ref(later)
    begin(residents, "a.py")
    del later
    gc.collect()
    assert gone() is None


def test_what_was_left_out_is_collected_with_the_next_file_or_after_the_session(
    residents: Residents,
) -> None:
    """A cycle that was alive is kept no longer than that."""
    for end in (lambda: begin(residents, "b.py"), residents.pytest_sessionfinish):
        kept = Circle()
        gone = weakref.ref(kept)
        begin(residents, "a.py")
        del kept
        gc.collect()
        assert gone() is not None
        end()
        gc.collect()
        assert gone() is None
