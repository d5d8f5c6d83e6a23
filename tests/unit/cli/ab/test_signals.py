"""Being asked to end at an awkward moment."""

from __future__ import annotations

import signal

import pytest

from gpubench_plugin.system.signals import exit_on_signals, signals_deferred, signals_ignored


def test_a_signal_while_something_starts_is_heard_after_it() -> None:
    """What was begun is finished first, then the interruption comes."""
    done = []
    with pytest.raises(KeyboardInterrupt):
        _start(done)
    assert done == ["started"]


def _start(done: list[str]) -> None:
    with signals_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("started")
    done.append("never")


def test_terminated_as_interrupted() -> None:
    """SIGTERM ends the work by an exception, with the exit code a shell would show."""
    with pytest.raises(SystemExit) as caught, exit_on_signals():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM


def test_nohup_is_respected() -> None:
    """A terminal that closes does not end what was started to outlive it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with exit_on_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_cleaning_up_is_not_interrupted() -> None:
    """A second Ctrl-C changes nothing; afterwards all is as before."""
    before = signal.getsignal(signal.SIGINT)
    with signals_ignored():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before
