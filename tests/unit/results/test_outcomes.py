from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from gpubench_plugin.core.errors import Misuse, Unsupported, UsageProblem
from gpubench_plugin.results import outcomes
from tests.support.fake_gpus import CudaStartedError, install
from tests.support.messages import mentions


def caught(step: Callable[[], object]) -> BaseException:
    try:
        step()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("error", "requested"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "2.00 GiB"),
        (MemoryError("Unable to allocate 7.50 TiB for an array with shape (1,)"), "7.50 TiB"),
        (caught(lambda: torch.empty(2**50)), "4.00 PiB"),
        (
            RuntimeError(
                "DefaultCPUAllocator: not enough memory: you tried to allocate 512 bytes."
            ),
            "512 B",
        ),
    ],
)
def test_failed_allocation_is_oom_and_says_how_much(error: BaseException, requested: str) -> None:
    """Of every library the requested amount stands in the reason, beside the peak."""
    kind, reason = outcomes.outcome_of(error)

    assert kind == "oom"
    assert reason.startswith(f"out of memory, requested {requested}, peak ")
    assert reason.endswith(f"{type(error).__name__}: {error}")


def test_oom_without_an_amount_says_the_peak_alone() -> None:
    """Python's own MemoryError has no text."""
    kind, reason = outcomes.outcome_of(MemoryError())
    assert (kind, reason[:20], reason[-13:]) == ("oom", "out of memory, peak ", ": MemoryError")


def test_lost_context_is_a_crash_with_the_runtimes_words() -> None:
    """Torch's hints are left to the traceback; what was raised on top of it is named."""
    lost = torch.AcceleratorError("CUDA error: misaligned address\nCompile with")
    reason = "CUDA context lost: AcceleratorError: CUDA error: misaligned address"
    assert outcomes.outcome_of(lost) == ("crashed", reason)

    error = ValueError("layer 3")
    error.__context__ = lost

    raised = "; raised as ValueError: layer 3"
    assert outcomes.outcome_of(error) == ("crashed", f"{reason}{raised}")


def test_amount_is_that_of_the_allocation_that_was_the_cause() -> None:
    """The error around it may not repeat the amount."""
    error = ValueError("layer 3")
    error.__cause__ = torch.OutOfMemoryError("Tried to allocate 2.00 GiB")

    kind, reason = outcomes.outcome_of(error)

    assert kind == "oom"
    assert reason.startswith("out of memory, requested 2.00 GiB, peak ")
    assert reason.endswith(": ValueError: layer 3")


def test_device_that_tells_no_peak_does_not_hide_the_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason is made while pytest reports: an error there would end the session."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    def refuse() -> int:
        raise torch.AcceleratorError("CUDA error: misaligned address")

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", refuse)
    assert outcomes.outcome_of(MemoryError()) == ("oom", "out of memory: MemoryError")


@pytest.mark.parametrize(
    ("text", "warned"), [("CUDA error: misaligned address", 0), ("CUDA error: not ready", 1)]
)
def test_device_that_keeps_its_memory_harms_no_later_benchmark(
    monkeypatch: pytest.MonkeyPatch, text: str, warned: int
) -> None:
    """It is a warning, unless the context is lost, which was reported by then."""

    def refuse() -> None:
        raise torch.AcceleratorError(text)

    accelerator = SimpleNamespace(is_available=lambda: True, empty_cache=refuse)
    monkeypatch.setattr(torch, "accelerator", accelerator)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("error")
        outcomes.release_frames([MemoryError()])
    assert len(recorded) == warned
    for warning in recorded:
        assert mentions(warning.message, "unused memory", f"AcceleratorError: {text}")


def test_peak_on_cuda_is_the_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CUDA is in use, what counts is what torch had handed out there."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**30)

    _, reason = outcomes.outcome_of(torch.OutOfMemoryError("Tried to allocate 2.00 GiB"))

    assert reason.startswith("out of memory, requested 2.00 GiB, peak 3.00 GiB: ")


@pytest.mark.parametrize(
    ("error", "skipped", "expected"),
    [
        (Unsupported("no fp8 here"), True, ("unsupported", "no fp8 here")),
        (pytest.skip.Exception("not now"), True, ("skipped", "not now")),
        (ValueError("wrong"), False, ("failed", "ValueError: wrong")),
        (UsageProblem("data.path: no"), False, ("misconfigured", "data.path: no")),
        (Misuse("gpubench was called twice"), False, ("failed", "gpubench was called twice")),
        (AssertionError(), False, ("failed", "AssertionError")),
    ],
)
def test_other_endings_keep_their_kind(
    error: BaseException, skipped: bool, expected: tuple[str, str]
) -> None:
    """What is no failed allocation is not taken for one."""
    assert expected == outcomes.outcome_of(error, skipped=skipped)


class Raises(ValueError):
    def __str__(self) -> str:
        raise self


class ExitsPytest(BaseException):
    def __str__(self) -> str:  # noqa: PLE0307 # it never returns
        pytest.exit("from __str__")


class NoText(RuntimeError):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value] # noqa: PLE0307 # that is the point

    __repr__ = __str__


@pytest.mark.parametrize("kind", [Raises, ExitsPytest, NoText])
def test_exception_that_cannot_be_shown_is_an_ordinary_failure(kind: type[BaseException]) -> None:
    """Its reason has the words that pytest has for it; also as the text of other kinds."""
    assert outcomes.outcome_of(kind()) == ("failed", f"{kind.__name__}: <exception str() failed>")
    assert outcomes.outcome_of(kind(), skipped=True) == ("skipped", "<exception str() failed>")
    group = BaseExceptionGroup("several", [kind(), kind()])
    assert outcomes.outcome_of(group)[1].endswith("Group: several (2 sub-exceptions)")


def test_freeing_an_error_lets_go_of_all_frames_it_went_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Locals of every frame die, also of the error's causes and of what pytest keeps in sys."""
    held = []

    def hold() -> None:
        tensor = torch.ones(4)
        held.append(weakref.ref(tensor))
        raise MemoryError

    def hold_more() -> None:
        tensor = torch.ones(4)
        held.append(weakref.ref(tensor))
        try:
            hold()
        except MemoryError as error:
            raise torch.OutOfMemoryError("again") from error

    emptied: list[str] = []
    accelerator = SimpleNamespace(
        is_available=lambda: True, empty_cache=lambda: emptied.append("cache")
    )
    monkeypatch.setattr(torch, "accelerator", accelerator)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    error = caught(hold_more)
    traceback = error.__traceback__  # as a report of pytest's has it
    sys.last_value = error  # as pytest does
    assert all(reference() is not None for reference in held)

    outcomes.release_frames([error])

    assert traceback is not None
    assert [reference() for reference in held] == [None, None]
    assert not hasattr(sys, "last_value")
    assert emptied == ["cache"]


def test_an_error_starts_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark that failed on the CPU leaves a CUDA that nobody uses as it is."""
    install(monkeypatch, None)
    monkeypatch.setattr(torch.accelerator, "is_available", torch.cuda.is_available)
    outcomes.release_frames([MemoryError()])
    with pytest.raises(CudaStartedError):
        torch.accelerator.is_available()


def test_freeing_an_error_looks_through_what_was_left_out() -> None:
    """A model in a cycle of references that collections have left out so far is freed, too."""

    class Model:
        def __init__(self) -> None:
            self.itself = self

    model = Model()
    gone = weakref.ref(model)
    gc.freeze()
    try:
        del model
        outcomes.release_frames([MemoryError()])
        assert gone() is None
    finally:
        gc.unfreeze()
