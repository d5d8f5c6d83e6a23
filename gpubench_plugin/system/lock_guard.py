"""Lock guard: a process that kills this one if a request to end is not even noticed.

While a thread holds the interpreter's lock for good, no other thread runs, nor any handler of a
signal. But Python's handler in C still writes the signal's number to the socket of
``signal.set_wakeup_fd``, and the guard sees that nobody reads it. Run by its path, it imports no
more than it needs.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from socket import MSG_PEEK, socket

_START = 'trap "" INT TERM HUP; exec "$0" "$@" >/dev/null &'
"""As nobody's child: a test that waits for all of its children does not wait for the guard."""


def start(receiver: socket, numbers: Collection[int], *, grace_s: float, stderr: int) -> None:
    """Start a guard of this process, which ends with it (Linux).

    It kills if one of the `numbers` stays unread at the `receiver`, a stream, for `grace_s`.

    Raises:
        OSError: it cannot be started.
    """
    own = map(str, (receiver.fileno(), os.getpid(), grace_s, *numbers))
    subprocess.run(
        ["/bin/sh", "-c", _START, sys.executable, "-I", "-S", __file__, *own],
        pass_fds=[receiver.fileno()],
        stderr=stderr,
        check=False,
    )


def guard(receiver: socket, process: int, grace_s: float, *numbers: int) -> None:
    """Return when the process ends or closes the socket; kill it if it has to be."""
    ends = [receiver.fileno(), os.pidfd_open(process)]  # a forked child may keep the socket open
    waited_s, step_s = 0.0, min(0.5, grace_s)
    while select.select(ends, [], [])[0] == ends[:1] and (unread := receiver.recv(4096, MSG_PEEK)):
        is_requested = not set(numbers).isdisjoint(unread)
        if is_requested and waited_s >= grace_s:
            os.kill(process, signal.SIGKILL)
            signal.alarm(5)  # if nobody reads
            os.write(2, b"\ngpubench: killed: asked to end, but a thread keeps Python's lock\n")
            return
        time.sleep(step_s)
        waited_s = waited_s + step_s if is_requested else 0.0


if __name__ == "__main__":
    _descriptor, _process, _grace_s, *_numbers = sys.argv[1:]
    with suppress(AttributeError, OSError):  # it has ended, or there are no pidfds
        guard(socket(fileno=int(_descriptor)), int(_process), float(_grace_s), *map(int, _numbers))
