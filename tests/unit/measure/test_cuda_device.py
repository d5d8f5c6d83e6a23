"""What of the real CUDA device can be tested without one: how it listens to torch's warnings."""

from __future__ import annotations

import warnings

import pytest
import torch

from gpubench_plugin.measure.clocks import TorchCuda

WAIT = "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:148.)"
ANNOUNCEMENT = "Synchronization debug mode is a prototype feature and does not yet detect all"


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str | int]:
    """The modes that were set; setting one warns, as torch does."""
    set_to: list[str | int] = []

    def set_mode(mode: str | int) -> None:
        set_to.append(mode)
        warnings.warn(ANNOUNCEMENT, stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    return set_to


@pytest.fixture
def device() -> TorchCuda:
    return TorchCuda(torch.device("cuda", 0))


def test_a_reported_wait_is_heard(device: TorchCuda, modes: list[str | int]) -> None:
    """A step of which torch warns that it waited is one that waits; the mode is put back."""
    assert device.synchronizes(lambda: warnings.warn(WAIT, stacklevel=1))
    assert modes == ["warn", 0]


def test_torchs_announcement_of_the_mode_is_no_wait(
    device: TorchCuda, modes: list[str | int]
) -> None:
    """A step of which torch says nothing does not wait."""
    assert not device.synchronizes(lambda: None)


@pytest.mark.usefixtures("modes")
def test_other_warnings_of_the_step_are_passed_on(device: TorchCuda) -> None:
    """What else the step warns of reaches the user."""
    with pytest.warns(UserWarning, match="something else"):
        assert not device.synchronizes(lambda: warnings.warn("something else", stacklevel=1))


def test_a_step_that_raises_leaves_the_mode_as_it_was(
    device: TorchCuda, modes: list[str | int]
) -> None:
    """The mode is put back also after an exception, which goes on to the caller."""

    def raising() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        device.synchronizes(raising)
    assert modes == ["warn", 0]
