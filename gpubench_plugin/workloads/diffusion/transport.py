"""Transfer of latents between ranks, each message with a fixed-size header.

gloo detects no mismatch: a tensor that is too short is received silently, one of another dtype as
garbage, and one that is too long aborts the process. So a header comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from math import prod
from time import monotonic
from typing import Final

import torch
from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.core.errors import CorrectnessError, LostMessage
from gpubench_plugin.core.records import Json
from gpubench_plugin.ranks.process_group import ProcessGroup

LENGTH: Final = 256
"""Bytes of a header, which is a text that is filled up."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """Message header: call, sample, step, ranks, dtype and shape.

    `call` counts the calls of the pipeline, `step` is the next one of the sample.
    """

    call: int
    sample: int
    step: int
    sender: int
    receiver: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def encode(self) -> Tensor:
        """The header's text as `LENGTH` bytes."""
        return torch.frombuffer(bytearray(str(self).ljust(LENGTH), "ascii"), dtype=torch.uint8)

    @property
    def facts(self) -> Json:
        """Sample, step, ranks, and size of the message, for the log."""
        numbers = ("sample", "step", "sender", "receiver")
        size = self.dtype.itemsize * prod(self.shape)
        return {**{name: getattr(self, name) for name in numbers}, "bytes": size}

    def __str__(self) -> str:
        dtype, shape = str(self.dtype).removeprefix("torch."), "x".join(map(str, self.shape))
        return (
            f"sample {self.sample} before step {self.step} (call {self.call}) as {dtype} {shape} "
            f"from rank {self.sender} for rank {self.receiver}"
        )


HOST = torch.device("cpu")


@dataclass(eq=False, repr=False, kw_only=True)
class Transport:
    """Sends asynchronously, and receives expected messages.

    Tensors use the default process group: from device to device with NCCL; with gloo from host to
    host, wherever they live. Headers always travel between hosts, so that reading one does not
    synchronize a device: with NCCL in the group of the agreement, which is gloo's. `timeout_s`
    gives the timeout, in seconds, of each wait that begins; `timeout_key` is its name in messages,
    `steps` are this rank's.
    """

    group: ProcessGroup
    timeout_s: Callable[[], float]
    timeout_key: str
    steps: range | None = None

    def __post_init__(self) -> None:
        steps = self.steps
        self._steps = "" if steps is None else f" (steps {steps.start} to {steps.stop - 1})"
        is_gloo = self.group.backend == "gloo"
        self._transfer_device = HOST if is_gloo else self.group.device
        self._headers = None if is_gloo else self.group.agreement.group
        # Keeps the tensors of unfinished transfers alive.
        self._pending: list[tuple[Header, dist.Work | None, Tensor]] = []

    def send(self, latents: Tensor, header: Header) -> None:
        """Start sending `latents`, which must not change before :meth:`flush`."""
        payload = latents.to(self._transfer_device).contiguous()
        numbers = header.encode()
        with _lost(f"rank {header.sender}{self._steps} could not send {header}"):
            header_work = dist.isend(numbers, header.receiver, group=self._headers)
            payload_work = dist.isend(payload, header.receiver)
        self._pending += [(header, header_work, numbers), (header, payload_work, payload)]

    def flush(self) -> None:
        """Wait until everything was sent.

        Raises:
            LostMessage: the timeout expired, or the other rank is gone.
        """
        for header, work, tensor in self._pending:
            rank = f"rank {header.sender}{self._steps}"
            self._wait(f"{rank} waited for its message to be received: {header}", work, tensor)
        self._pending.clear()

    def receive(self, expected: Header) -> Tensor:
        """Receive the latents described by `expected`.

        Raises:
            CorrectnessError: another message arrived; nothing more can be received then.
            LostMessage: the timeout expired, or the other rank is gone.
        """
        header = torch.zeros(LENGTH, dtype=torch.uint8)
        self._fill(header, expected, self._headers)
        if not header.equal(expected.encode()):
            text = bytes(header.tolist()).decode("ascii", "replace").rstrip()
            received = text if text.startswith("sample ") else "data that is not a header"
            raise CorrectnessError(f"{self._wait_text(expected)}, but received {received}")
        payload = torch.empty(expected.shape, dtype=expected.dtype, device=self._transfer_device)
        self._fill(payload, expected, None)
        return payload.to(self.group.device)

    def _fill(self, tensor: Tensor, expected: Header, group: dist.ProcessGroup | None) -> None:
        context = self._wait_text(expected)
        with _lost(context):
            work = dist.irecv(tensor, expected.sender, group=group)
        self._wait(context, work, tensor)

    def _wait_text(self, expected: Header) -> str:
        return f"rank {expected.receiver}{self._steps} waited for {expected}"

    def _wait(self, context: str, work: dist.Work | None, tensor: Tensor) -> None:
        if work is None:  # this rank is not in the group
            return
        started, timeout_s = monotonic(), self.timeout_s()
        with _lost(context):
            try:
                # On a device only the stream waits; with a timeout the host would, too. The header
                # has arrived then, and NCCL's watchdog detects a missing payload.
                on_host = tensor.device.type == "cpu"
                work.wait(timedelta(seconds=timeout_s)) if on_host else work.wait()
            except RuntimeError as error:
                if monotonic() - started >= timeout_s:
                    message = f"{context} for {timeout_s:.3g} s ({self.timeout_key})"
                    raise LostMessage(message) from error
                raise


@contextmanager
def _lost(context: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise LostMessage(f"{context}: {reason}") from error
