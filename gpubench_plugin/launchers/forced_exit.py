"""Forced exit of a pytest session whose main thread hangs or must stop.

Everything is written and printed as at a regular end, but no fixture is torn down: the teardown
could hang like the main thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NoReturn

import pytest

from gpubench_plugin.core.errors import error_text

EXIT_GRACE_S: Final = 20.0
"""For the end of a session, within the 30 s after which torch.distributed.elastic kills ranks."""


def force_exit(
    session: pytest.Session, reports: Iterable[pytest.TestReport], *, message: str, code: int
) -> NoReturn:
    """Log `reports`, flush all results, print `message`, and exit the process.

    Call it from any thread. `code` is the exit code of the session and the process. After a grace
    period the process exits in any case.
    """
    limit = threading.Timer(EXIT_GRACE_S, os._exit, (code,))
    limit.daemon = True
    limit.start()
    try:
        _finish_session(session, reports, message, code)
        is_shown = session.config.pluginmanager.hasplugin("terminalreporter")
        _print("" if is_shown else f"gpubench: {message}\n")
    except BaseException as error:  # no caller is left to handle it
        _print(
            f"gpubench: error while finishing the session: {type(error).__name__}: "
            f"{error_text(error)}\n"
        )
    finally:
        os._exit(code)


def _finish_session(
    session: pytest.Session, reports: Iterable[pytest.TestReport], message: str, code: int
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
            raise KeyboardInterrupt(message)
        session.config.hook.pytest_keyboard_interrupt(excinfo=interruption)
    else:
        session.shouldfail = message
    # pytest's runner would tear down the fixtures.
    finish = manager.subset_hook_caller("pytest_sessionfinish", [manager.get_plugin("runner")])
    finish(session=session, exitstatus=code)


def _print(text: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    with suppress(OSError):
        os.write(2, text.encode(errors="replace"))
