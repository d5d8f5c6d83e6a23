"""A valve on a rank's terminal: under torchrun, rank zero alone prints.

Whether a session has benchmarks is known only after collection, so the output of the other ranks
is held back until then: a session without benchmarks gets it printed, one with benchmarks has it
written to the rank's log.
"""

from __future__ import annotations

import io
from collections import deque
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping


GANG: Final = "GPUBENCH_GANG"
"""Names the folder of a gang; its presence makes a process a rank of that gang."""


def is_secondary(environment: Mapping[str, str]) -> bool:
    """Whether torchrun started this process as another rank than zero."""
    return environment.get("RANK", "0") != "0" and environment.get("WORLD_SIZE", "1") != "1"


class Valve(io.TextIOBase):
    """A text stream that holds what is written to it until it is given a target."""

    def __init__(self, terminal: TextIO):
        self.terminal = terminal
        self._held: deque[str] = deque()
        self._target: TextIO | None = None

    def release(self, target: TextIO | None = None) -> None:
        """Write what was held, and from now on everything, to `target` or to the terminal."""
        self._target = target or self.terminal
        self._target.writelines(self._held)
        self._target.flush()
        self._held.clear()

    def close_for_good(self) -> None:
        """Forget what was held, and whatever is written from now on."""
        self._target = None
        self._held = deque(maxlen=0)

    def write(self, text: str) -> int:
        """Hold or pass on `text`."""
        if self._target is None:
            self._held.append(text)
        else:
            self._target.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the target, if there is one yet."""
        if self._target is not None:
            self._target.flush()

    def isatty(self) -> bool:
        """As the terminal."""
        return self.terminal.isatty()

    def fileno(self) -> int:
        """As the terminal."""
        return self.terminal.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override] # read-only here
        """As the terminal."""
        return self.terminal.encoding
