"""Signals that ask a session to end, once and again."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gpubench_plugin.launchers.in_process import SignalInterrupt

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def interruption() -> Iterator[SignalInterrupt]:
    """A session's, where nobody else has set a handler."""
    defaults = (signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL)
    before = [signal.signal(n, d) for n, d in zip(NUMBERS, defaults, strict=True)]
    made = SignalInterrupt()
    made.handle_signals()
    yield made
    made.pytest_unconfigure()
    after = [signal.signal(n, b) for n, b in zip(NUMBERS, before, strict=True)]
    assert after == list(defaults)


def asked(number: signal.Signals) -> BaseException | None:
    """What the signal raises."""
    try:
        signal.raise_signal(number)
    except (KeyboardInterrupt, pytest.exit.Exception) as error:
        return error
    return None


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.usefixtures("interruption")
def test_every_signal_ends_the_session_like_ctrl_c(number: signal.Signals) -> None:
    """Also a second time, where a test has caught the first."""
    for _ in range(2):
        raised = asked(number)
        if number == signal.SIGINT:
            assert isinstance(raised, KeyboardInterrupt)
        else:
            assert isinstance(raised, pytest.exit.Exception)
            assert raised.returncode == pytest.ExitCode.INTERRUPTED
            assert str(raised) == f"interrupted by {number.name}"


@pytest.mark.parametrize("number", NUMBERS)
def test_who_asks_again_while_pytest_says_why_is_not_heard(
    interruption: SignalInterrupt, number: signal.Signals
) -> None:
    """Else it would cost pytest its exit code, and the run its status."""
    assert asked(number) is not None
    interruption.pytest_keyboard_interrupt()
    assert asked(number) is None


def test_ctrl_c_ends_what_is_torn_down_at_the_end(interruption: SignalInterrupt) -> None:
    """Fixtures may hang there: however often somebody asks, it is heard."""
    assert asked(signal.SIGINT) is not None
    interruption.pytest_keyboard_interrupt()
    next(interruption.pytest_sessionfinish())
    for _ in range(2):
        assert str(asked(signal.SIGINT)) == "interrupted by SIGINT"
