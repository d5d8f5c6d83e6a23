"""Signals that ask a session to end, once and again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from gpubench_plugin.launchers.in_process import InProcessLauncher
from gpubench_plugin.session.interruption import SignalInterrupt

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def interruption(request: pytest.FixtureRequest) -> Iterator[SignalInterrupt]:
    """A session's that runs its tests, where nobody else has set a handler."""
    defaults: tuple[Any, ...] = (signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL)
    before = [signal.signal(n, d) for n, d in zip(NUMBERS, defaults, strict=True)]
    made = SignalInterrupt(request.session, InProcessLauncher(request.config))
    running = made.pytest_runtestloop()
    next(running)
    yield made
    made.pytest_keyboard_interrupt(shown())
    running.close()
    made.pytest_unconfigure()
    after = [signal.signal(n, b) for n, b in zip(NUMBERS, before, strict=True)]
    assert after == list(defaults)


def shown() -> pytest.ExceptionInfo[BaseException]:
    """The interruption that pytest shows."""
    with pytest.raises(KeyboardInterrupt) as interruption:
        raise KeyboardInterrupt
    return interruption


def asked(number: signal.Signals) -> BaseException | None:
    """What the signal raises."""
    return raised(lambda: signal.raise_signal(number))


def raised(call: Callable[[], object]) -> BaseException | None:
    """What a call raises to end the session."""
    try:
        call()
    except (KeyboardInterrupt, pytest.exit.Exception) as error:
        return error
    return None


def around(hook: Generator[None, object, object], inside: Callable[[], object]) -> None:
    """What a hook's wrapper does around the others."""
    next(hook)
    inside()
    with suppress(StopIteration):
        hook.send(None)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.usefixtures("interruption")
def test_every_signal_ends_the_session_like_ctrl_c(number: signal.Signals) -> None:
    """Also a second time, where a test has caught the first."""
    for _ in range(2):
        error = asked(number)
        assert isinstance(error, KeyboardInterrupt)
        assert str(error) == f"interrupted by {number.name}"


@pytest.mark.parametrize("number", NUMBERS)
def test_no_report_follows_what_was_swallowed(
    interruption: SignalInterrupt, number: signal.Signals
) -> None:
    """Whatever became of the exception: the next report of a phase is not logged."""
    assert asked(number) is not None
    logged: list[str] = []
    error = raised(
        lambda: around(interruption.pytest_runtest_logreport(), lambda: logged.append(""))
    )
    assert str(error) == f"interrupted by {number.name}"
    assert logged == []


def test_report_that_is_being_logged_is_logged_to_its_end(interruption: SignalInterrupt) -> None:
    """The request is raised behind it, and may come before any test runs."""
    logged: list[str] = []

    def log() -> None:
        assert asked(signal.SIGTERM) is None
        logged.append("all of it")

    assert raised(lambda: around(interruption.pytest_runtest_logreport(), log)) is not None
    assert logged == ["all of it"]


def test_request_before_the_tests_is_raised_at_once(request: pytest.FixtureRequest) -> None:
    """And once more where somebody has swallowed it."""
    made = SignalInterrupt(request.session, InProcessLauncher(request.config))
    try:
        assert isinstance(asked(signal.SIGTERM), KeyboardInterrupt)
        assert isinstance(raised(lambda: next(made.pytest_runtestloop())), KeyboardInterrupt)
    finally:
        made.pytest_unconfigure()


@pytest.mark.parametrize("number", NUMBERS)
def test_who_asks_again_while_pytest_says_why_is_not_heard(
    interruption: SignalInterrupt, number: signal.Signals
) -> None:
    """Else it would cost pytest its exit code, and the run its status."""
    assert asked(number) is not None
    interruption.pytest_keyboard_interrupt(shown())
    assert asked(number) is None
    around(interruption.pytest_sessionfinish(), interruption.pytest_release_signals)


def test_ctrl_c_ends_what_is_torn_down_at_the_end(interruption: SignalInterrupt) -> None:
    """Fixtures may hang there: however often somebody asks, it is heard."""
    assert asked(signal.SIGINT) is not None
    interruption.pytest_keyboard_interrupt(shown())
    next(interruption.pytest_sessionfinish())
    interruption.pytest_release_signals()
    for _ in range(2):
        assert str(asked(signal.SIGINT)) == "interrupted by SIGINT"


def test_request_while_results_are_written_ends_the_session_afterwards(
    interruption: SignalInterrupt,
) -> None:
    """Also where what else runs at the end swallows it."""
    finish = interruption.pytest_sessionfinish()
    next(finish)
    assert asked(signal.SIGTERM) is None
    for again in (interruption.pytest_release_signals, lambda: finish.send(None)):
        error = raised(again)
        assert isinstance(error, pytest.exit.Exception)
        assert error.returncode == pytest.ExitCode.INTERRUPTED


def test_debugger_has_ctrl_c(interruption: SignalInterrupt) -> None:
    """It asks for a prompt there, and for no end; a scheduler still asks for one."""
    interruption.pytest_enter_pdb()
    assert isinstance(asked(signal.SIGINT), KeyboardInterrupt)
    around(interruption.pytest_runtest_logreport(), lambda: None)
    assert asked(signal.SIGTERM) is not None
    assert raised(lambda: next(interruption.pytest_runtest_logreport())) is not None


@pytest.mark.usefixtures("interruption")
def test_forked_process_is_no_part_of_the_session() -> None:
    """A worker of a data loader ends as without the plugin, and its signals are its own."""
    child = os.fork()
    if not child:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_ignored_signals_and_handlers_of_others_stay(request: pytest.FixtureRequest) -> None:
    """As below ``nohup``."""

    def others(*_: Any) -> None: ...

    before = [signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.signal(signal.SIGTERM, others)]
    made = SignalInterrupt(request.session, InProcessLauncher(request.config))
    try:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is others
    finally:
        made.pytest_unconfigure()
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGTERM, before[1])
