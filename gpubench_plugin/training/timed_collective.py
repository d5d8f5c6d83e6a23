"""Collectives under measurement: message sizes such as ``64KiB``, free memory, and the subject."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import psutil
import torch

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError, Misuse, Unsupported, invalid_choice
from gpubench_plugin.core.format import byte_size
from gpubench_plugin.core.records import Check, Work
from gpubench_plugin.environment.devices import timed_s
from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.workloads.base import DTYPES
from gpubench_plugin.workloads.collectives.base import Collective


def free_bytes(device: torch.device, *, local_ranks: int, shared: bool = False) -> int:
    """Free bytes on `device`: this rank's share of a CPU's memory, or of a `shared` device's."""
    if device.type == "cpu":
        return int(psutil.virtual_memory().available) // local_ranks
    free = int(torch.get_device_module(device).mem_get_info(device)[0])
    return free // local_ranks if shared else free


_UNITS: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE: Final = re.compile(rf"([1-9][0-9]*)({'|'.join(_UNITS)})")


def parse(text: str) -> int:
    """Parse a message size.

    Raises:
        Misuse: it is no positive integer of B, KiB, MiB or GiB.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        allowed = f"an integer with {', '.join(_UNITS)}, such as 64KiB"
        raise Misuse(f"message size {text!r}; allowed: {allowed}")
    return int(match[1]) * _UNITS[match[2]]


# Content of a buffer before anything is received; no collective delivers it.
_NOTHING: Final = -1.0

# Input, output and expected output: there are never more of the message's size.
_BUFFERS: Final = 3

_UNSUPPORTED_MESSAGE: Final = re.compile(
    r"does not support|no support for|not implemented|unsupported device type|No backend type",
    re.IGNORECASE,
)
"""Messages of torch for a backend without the collective, or without it on this device."""


class TimedCollective:
    """Timed subject: one call of :meth:`step` runs `collective` once.

    Every element of its output is checked before and after the timing. A step waits for the device
    no more than the backend does.
    """

    def __init__(self, collective: Collective, group: ProcessGroup):
        self._collective = collective
        self._group = group
        self._send_buffer = collective.make_input()
        self.calls = 0
        if collective.in_place:
            self._recv_buffer = self._send_buffer
        else:
            self._recv_buffer = torch.empty_like(collective.expected_output())
        self._load()

    def step(self) -> None:
        """Run the collective once (hot path)."""
        self._collective.run(self._send_buffer, self._recv_buffer)
        self.calls += 1

    def prepare(self, log: object) -> Check:
        """Run it once, timed, and compare every element.

        Raises:
            CorrectnessError: this rank received wrong values.
            Unsupported: the backend does not support the collective.
        """
        self._group.agreement.barrier()
        try:
            first_step_s = timed_s(self.step, self._recv_buffer.device)
        except RuntimeError as error:  # NotImplementedError is one
            if not _UNSUPPORTED_MESSAGE.search(str(error)):
                raise
            reason = str(error).partition("\n")[0]
            name, backend = self._collective.name, self._group.backend
            raise Unsupported(f"{backend} does not support {name} here: {reason}") from error
        self._require_equal()
        if self._collective.output_grows:
            self._send_buffer.zero_()
        return Check(
            correctness={
                "collective": self._collective.name,
                "verified_elements": self._recv_buffer.numel(),
            },
            facts={"first_step_s": first_step_s},
        )

    def begin(self) -> None:
        """Clear the output, so that the timed calls have to deliver it again."""
        if not self._collective.in_place:
            self._recv_buffer.fill_(_NOTHING)
        elif not self._collective.output_grows:
            self._load()

    def finish(self) -> Mapping[str, float]:
        """``collective_bytes``, the size for algorithm bandwidth, and ``bus_factor``.

        A collective that was timed on zeros runs once more on values.

        Raises:
            CorrectnessError: the timed calls left wrong values.
        """
        if self._collective.output_grows:
            self._load()
            self.step()
        self._require_equal()
        return {
            "collective_bytes": float(self._collective.size_bytes),
            "bus_factor": self._collective.bus_factor,
        }

    def work(self) -> Work:
        """No work, since the bytes of a collective must not be summed over ranks."""
        return Work()

    def flops_step(self) -> None:
        """Do nothing: a collective has no FLOPs to count."""

    def _load(self) -> None:
        self._send_buffer.copy_(self._collective.make_input())
        if not self._collective.in_place:
            self._recv_buffer.fill_(_NOTHING)

    def _require_equal(self) -> None:
        expected = self._collective.expected_output()
        if torch.equal(self._recv_buffer, expected):
            return
        mismatches = (self._recv_buffer != expected).nonzero().flatten()
        first_mismatch = int(mismatches[0])
        raise CorrectnessError(
            f"{self._collective.name}: rank {self._collective.rank} received "
            f"{self._recv_buffer[first_mismatch].item():g} instead of "
            f"{expected[first_mismatch].item():g} in element {first_mismatch} of "
            f"{expected.numel()}; {mismatches.numel()} elements differ"
        )


def exchange(
    name: str, size: str, *, group: ProcessGroup, largest_bytes: int | None, computed_in: str
) -> TimedCollective:
    """Build the collective `name` for messages of `size`; must be called on every rank.

    The dtype is that in which a precision's matrix products are `computed_in`: fp32, tf32 (stored
    as fp32), fp16 or bf16.

    Raises:
        Unsupported: on all ranks, for a single rank, messages larger than `largest_bytes` or too
            small to be divided, sums that are not exact, or too little memory on any rank.
        Misuse: an unknown collective, or an invalid `size`.
    """
    if name not in (names := catalog.choices("collectives")):
        raise Misuse(str(invalid_choice("collective", name, names)))
    kind: type[Collective] = catalog.load("collectives", name)
    size_bytes, world = parse(size), group.world
    if world.size == 1:
        raise Unsupported(f"{name}: requires at least 2 ranks")
    if largest_bytes is not None and size_bytes > largest_bytes:
        limit = f"distributed.largest_message_bytes={largest_bytes}"
        raise Unsupported(f"{name} of {size}: exceeds {limit}; see --preset=full")
    collective = kind(
        rank=world.rank,
        world_size=world.size,
        size_bytes=size_bytes,
        device=group.device,
        dtype=DTYPES.get(computed_in, torch.float32),
    )
    needed_bytes, ranks = _BUFFERS * size_bytes, world.local_size
    free = free_bytes(group.device, local_ranks=ranks, shared=group.shares_device)
    if not group.agreement.everywhere(needed_bytes <= free):  # or the others would wait for it
        raise Unsupported(
            f"{name} of {size}: needs {byte_size(needed_bytes)} on every rank; free are "
            f"{byte_size(free)} here"
        )
    return TimedCollective(collective, group)
