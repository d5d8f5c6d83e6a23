"""The addresses on which this process listens, read from Linux' /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

LISTENING = "0A"


def listeners() -> set[str]:
    """The local ``address:port`` of every listening TCP socket of this process, in hexadecimal."""
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(str(descriptor.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in own:
                found.add(fields[1])
    return found


def on_loopback(listener: str) -> bool:
    """Whether the address is 127.0.0.1, or ::1."""
    address = listener.partition(":")[0]
    return address in {"0100007F", "00000000000000000000000001000000"}
