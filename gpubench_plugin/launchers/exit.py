"""The end of a pytest session whose main thread cannot bring it about: it hangs, or must stop.

Everything is written and printed as at an ordinary end, but no fixture is torn down: that could
wait for the same thing as the main thread does.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NoReturn

import pytest

from gpubench_plugin.errors import text_of

LONGEST_S: Final = 20.0
"""torchrun gives its ranks 30 s after it has asked them to end."""


def end_session(
    session: pytest.Session,
    reports: Iterable[pytest.TestReport],
    *,
    why: str,
    code: int,
    within_s: float = LONGEST_S,
    written: Callable[[], object] = lambda: None,
) -> NoReturn:
    """Log `reports`, let everybody write what there is, say `why`, and end this process.

    From any thread. `code` is the session's and the process' exit code; `written` is called when
    all is written. After `within_s` seconds the process ends, whatever has been written by then.
    """
    limit = threading.Timer(within_s, os._exit, (code,))
    limit.daemon = True
    limit.start()
    try:
        _finish(session, reports, why, code)
        written()
    except BaseException as error:  # there is nobody left who could handle it
        _say(f"gpubench: the session's end failed: {type(error).__name__}: {text_of(error)}")
    finally:
        os._exit(code)


def _finish(
    session: pytest.Session, reports: Iterable[pytest.TestReport], why: str, code: int
) -> None:
    manager = session.config.pluginmanager
    capture = manager.get_plugin("capturemanager")
    if capture is not None:
        capture.suspend(in_=True)
    for report in reports:
        session.config.hook.pytest_runtest_logreport(report=report)
    session.exitstatus = code
    if code == pytest.ExitCode.INTERRUPTED:
        with pytest.raises(KeyboardInterrupt) as interruption:
            raise KeyboardInterrupt(why)
        session.config.hook.pytest_keyboard_interrupt(excinfo=interruption)
    else:
        session.shouldfail = why
    # pytest's runner would tear down the fixtures.
    finish = manager.subset_hook_caller("pytest_sessionfinish", [manager.get_plugin("runner")])
    finish(session=session, exitstatus=code)
    _say(f"gpubench: {why}")


def _say(text: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))
