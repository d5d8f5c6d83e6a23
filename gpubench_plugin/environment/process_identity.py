"""Process identity that a later process can check for liveness.

Process ids are meaningful only within one boot and one PID namespace, so nothing is concluded about
a process of another host, another container or an earlier boot.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gpubench_plugin.core.records import Json

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SELF = Path("/proc/self")
STATE, _START_TIME, EXIT_STATUS = 0, 19, 49
"""Fields 3, 22 and 52 of proc_pid_stat(5), counted from after the name."""


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """A process of user `uid` on `host`, in the namespace `place` (:func:`namespace_id`).

    `started` is in clock ticks since boot; with `pid` it is unique within `place`.
    """

    uid: int
    host: str
    place: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> Self | None:
        """Identity of the current process; None if the system does not provide it."""
        namespace, pid = namespace_id(), os.getpid()
        fields = stat_fields(pid)
        if namespace is None or fields is None:
            return None
        host, started = socket.gethostname(), int(fields[_START_TIME])
        return cls(uid=os.geteuid(), host=host, place=namespace, pid=pid, started=started)

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Deserialize :func:`dataclasses.asdict`; raises KeyError, TypeError or ValueError."""
        numbers = {name: data[name] for name in ("uid", "pid", "started")}
        texts = {name: data[name] for name in ("host", "place")}
        if not all(type(number) is int and 0 <= number < 2**63 for number in numbers.values()):
            raise ValueError(f"invalid process numbers: {numbers}")
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError(f"invalid host names: {texts}")
        return cls(**numbers, **texts)

    def is_gone(self) -> bool:
        """Whether the process has certainly ended; False if unknown."""
        now = type(self).current()
        if now is None or (self.uid, self.host, self.place) != (now.uid, now.host, now.place):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        fields = stat_fields(self.pid)
        return fields is not None and (
            fields[STATE] in {"Z", "X"} or int(fields[_START_TIME]) != self.started
        )


def namespace_id() -> str | None:
    """Boot id and this process's PID and time namespaces; None if unknown.

    Two processes with the same id see each other's process ids and start times.
    """
    try:
        if _SELF.readlink() != Path(str(os.getpid())):  # the procfs of another namespace
            return None
        boot = _BOOT.read_text(encoding="ascii").strip()
        clocks = _SELF / "ns" / "time"  # Linux 5.6
        clock = clocks.readlink() if clocks.is_symlink() else "time:none"
        return f"{boot} {(_SELF / 'ns' / 'pid').readlink()} {clock}"
    except (OSError, ValueError):
        return None


def stat_fields(pid: int) -> list[str] | None:
    """Fields of ``/proc/<pid>/stat`` after the name; None without such a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
