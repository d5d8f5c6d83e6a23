"""Child processes: started, waited for, ended with all that they started, and asked for facts."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.system.signals import signals_deferred, signals_ignored
from gpubench_plugin.system.timeout_clock import TimeoutClock, poll_interval_s

# Importing torch from a cold disk is most of it.
_TIMEOUT_S: Final = 120.0
# The end of an output in which pytest's short summary fits.
_LAST_LINES: Final = 15
_LINE_BYTES: Final = 1024


class Child:
    """A child process, by default without standard input.

    It leads a session of its own, so that Ctrl-C does not reach it and it is killed with all that
    it started, unless `new_session` is False; other options are those of :class:`subprocess.Popen`.
    What it prints is appended to the file `output`, if one is given. `ended` is a pidfd, readable
    once the process has ended; None where the system has none.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        new_session: bool = True,
        output: Path | None = None,
        **options: Any,
    ):
        options = {"stdin": subprocess.DEVNULL, **options}
        with ExitStack() as stack:
            if output is not None:
                options["stdout"] = options["stderr"] = stack.enter_context(output.open("ab"))
            self._process = subprocess.Popen(
                command, env=environ, start_new_session=new_session, **options
            )
        self._leads_session = new_session
        self.pid = self._process.pid
        self.ended: int | None = None
        with suppress(AttributeError, OSError):  # Linux 5.3 or newer, and not in every sandbox
            self.ended = os.pidfd_open(self.pid)

    @property
    def code(self) -> int | None:
        """Exit code, or the negative number of the signal that killed it; None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float = math.inf) -> int | None:
        """Wait for its end; the code, or None after `timeout_s` in which this process was awake.

        It wakes up rarely, so as not to disturb what the child measures.
        """
        clock = TimeoutClock()
        while self.code is None and (remaining_s := clock.remaining(timeout_s)) > 0:
            self._sleep(poll_interval_s(remaining_s))
        return self.code

    def _sleep(self, seconds: float) -> None:
        if self.ended is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        else:
            poll = select.poll()
            poll.register(self.ended, select.POLLIN)
            poll.poll(seconds * 1e3)

    def communicate(self, question: bytes, timeout_s: float) -> tuple[bytes, bytes]:
        """Write to its pipe and read the others to their ends; as :class:`subprocess.Popen`."""
        return self._process.communicate(question, timeout_s)

    def kill(self) -> None:
        """Kill it with its session, also where it has ended itself."""
        with suppress(ProcessLookupError, PermissionError):
            if self._leads_session:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def end(self, grace_s: float) -> int:
        """End it by SIGTERM, and after `grace_s` by SIGKILL; the code.

        A second signal to this process kills it at once.
        """
        try:
            if self.code is None:
                self._process.terminate()
                self.wait(grace_s)
        finally:
            with signals_ignored():
                self.kill()
                with self._process:  # closes its pipes
                    code = self._process.wait()
                self.close()
        return code

    def close(self) -> None:
        """Close the pidfd; the process itself may run on."""
        if self.ended is not None:
            os.close(self.ended)
            self.ended = None


@contextmanager
def running(command: Sequence[str], *, grace_s: float, **options: Any) -> Iterator[Child]:
    """Context of a running :class:`Child`, ended at its end by :meth:`Child.end`.

    A signal while the process is being started does not lose it. Raises OSError.
    """
    with ExitStack() as stack:
        with signals_deferred():
            child = Child(command, **options)
            stack.callback(child.end, grace_s)
        yield child


def child_pids() -> set[int]:
    """Ids of this process's children, by any of its threads (Linux) or a forkserver, and theirs."""
    from multiprocessing import active_children  # where it is used, it is imported already

    pids = [os.getpid(), *(child.pid for child in active_children() if child.pid)]
    for pid in pids:  # which grows meanwhile
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # the thread has just ended
                pids.extend(map(int, children.read_text().split()))
    return {*pids[1:]}


def code_text(code: int) -> str:
    """Describe an exit code; negative numbers are signals."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (possibly the out-of-memory killer)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


class ChildError(Exception):
    """A child process failed or printed no facts; the message is the reason, in one line."""


def output_of(
    command: Sequence[str], *, timeout_s: float, question: bytes = b"", **options: Any
) -> bytes:
    """What `command` prints, with `question` on its input; `options` are those of :class:`Child`.

    Raises:
        ChildError: it cannot be run, failed, or was not done in time.
    """
    options |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    try:
        with running(command, grace_s=0, **options) as child:
            output, complaint = child.communicate(question, timeout_s)
    except subprocess.TimeoutExpired as error:  # what it wrote is no reason
        raise ChildError(f"no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise ChildError(str(error)) from error
    if child.code:
        reason = complaint.decode("utf-8", "backslashreplace").strip().rpartition("\n")[2]
        raise ChildError(reason or f"{command[0]} {code_text(child.code)}")
    return output


def facts_of(
    command: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    *,
    cwd: Path | None = None,
    question: object = None,
    timeout_s: float = _TIMEOUT_S,
) -> Any:
    """The JSON in the last line that `command` prints, with `question` as JSON on its input.

    Raises:
        ChildError: it cannot be run, failed, was not done in time, or printed no JSON.
    """
    # Its warnings may be errors here, which it must not fail by.
    environ = {name: value for name, value in environ.items() if name != "PYTHONWARNINGS"}
    query = json.dumps(question).encode()
    output = output_of(command, cwd=cwd, environ=environ, question=query, timeout_s=timeout_s)
    text = output.decode("utf-8", "backslashreplace").strip()
    try:
        return json.loads(text.rpartition("\n")[2])
    except ValueError as error:
        raise ChildError(f"it printed no facts but {text[-80:]!r}") from error


def last_lines(output: Path, count: int = _LAST_LINES) -> tuple[str, ...]:
    """The last `count` lines of the output in a file, without empty lines."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - count * _LINE_BYTES))
        text = file.read().decode("utf-8", "backslashreplace")
    return tuple(line for line in text.splitlines() if line.strip())[-count:]
