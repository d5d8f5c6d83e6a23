"""Messages on a wire that is a list: what goes where, and what is waited for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpubench_plugin.core.errors import CorrectnessError, LostMessage
from gpubench_plugin.workloads.diffusion import transport
from gpubench_plugin.workloads.diffusion.transport import LENGTH, Header, Transport

HEADER = Header(
    call=1, sample=0, step=4, sender=0, receiver=1, dtype=torch.float32, shape=(1, 2, 2, 2)
)


class Work:
    """A transfer: waited for, or one that fails so."""

    def __init__(self, failure: str = ""):
        self.failure = failure
        self.waited: list[timedelta | None] = []

    def wait(self, timeout: timedelta | None = None) -> None:
        self.waited.append(timeout)
        if self.failure:
            raise RuntimeError(self.failure)


class Distributed:
    """Stands for torch.distributed: keeps what is sent, and hands it out."""

    def __init__(self, failure: str = "") -> None:
        self.sent: list[tuple[torch.Tensor, Any]] = []
        self.works: list[Work] = []
        self.failure = failure

    def isend(self, tensor: torch.Tensor, dst: int, group: Any = None) -> Work:
        self.sent.append((tensor, group))
        self.works.append(Work(self.failure))
        return self.works[-1]

    def irecv(self, tensor: torch.Tensor, src: int, group: Any = None) -> Work:
        given, used = self.sent.pop(0)
        assert used is group
        tensor.copy_(given)
        return Work(self.failure)


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces torch.distributed."""

    def wire(failure: str = "") -> Distributed:
        fake = Distributed(failure)
        monkeypatch.setattr(transport, "dist", fake)
        return fake

    return wire


def on(device: str, *, staged: bool, headers: Any = None) -> Transport:
    agreement = SimpleNamespace(group=headers)
    backend = "gloo" if staged else "nccl"
    group: Any = SimpleNamespace(backend=backend, device=torch.device(device), agreement=agreement)
    return Transport(
        group=group,
        timeout_s=lambda: 5.0,
        timeout_key="diffusion.receive_timeout_s",
    )


def test_header_and_payload_take_their_own_groups(wired: Any) -> None:
    """With NCCL the header goes by the hosts' group, before the payload of the default one."""
    wire, hosts = wired(), object()
    latents = torch.randn(HEADER.shape)
    end = on("cpu", staged=False, headers=hosts)
    end.send(latents, HEADER)
    assert [group for _, group in wire.sent] == [hosts, None]
    assert torch.equal(end.receive(HEADER), latents)


def test_another_message_is_named(wired: Any) -> None:
    """With sample, step, shape and both ranks of both; what is no header is not read as one."""
    end = on("cpu", staged=False)
    wire = wired()
    end.send(torch.zeros(HEADER.shape), replace(HEADER, step=5, dtype=torch.bfloat16))
    with pytest.raises(CorrectnessError, match=r"step 4 .*float32 1x2x2x2 .* step 5 .*bfloat16"):
        end.receive(HEADER)
    wire.sent = [(torch.zeros(LENGTH, dtype=torch.uint8), None)]
    with pytest.raises(CorrectnessError, match="but received data that is not a header"):
        end.receive(HEADER)


def test_payload_stays_on_its_device_unless_it_is_staged(wired: Any) -> None:
    """Of tensors on a device gloo is given copies on the host, NCCL the tensors themselves."""
    wire = wired()
    latents = torch.zeros(HEADER.shape, device="meta")
    on("meta", staged=False).send(latents, HEADER)
    assert wire.sent[1][0].device.type == "meta"
    wire.sent.clear()
    end = on("meta", staged=True)
    wire.sent = [(HEADER.encode(), None), (torch.ones(HEADER.shape), None)]
    assert end.receive(HEADER).device.type == "meta"  # back from the host


def test_layout_of_what_is_sent_is_plain(wired: Any) -> None:
    """Latents in channels_last arrive with the same values in the same places."""
    wired()
    latents = torch.randn(HEADER.shape).to(memory_format=torch.channels_last)
    end = on("cpu", staged=False)
    end.send(latents, HEADER)
    assert torch.equal(end.receive(HEADER), latents)


def test_sending_waits_only_when_it_is_flushed(wired: Any) -> None:
    """Computing goes on while messages are on their way; flushing waits for each once."""
    wire = wired()
    end = on("cpu", staged=False)
    for _ in range(2):
        end.send(torch.zeros(HEADER.shape), HEADER)
    assert [work.waited for work in wire.works] == [[]] * 4
    end.flush()
    end.flush()
    assert [work.waited for work in wire.works] == [[timedelta(seconds=5)]] * 4


def test_host_does_not_wait_for_what_a_device_sends(wired: Any) -> None:
    """Of a header the host waits for the end, and with a limit; of a payload its device does."""
    wire = wired()
    end = on("meta", staged=False)
    end.send(torch.zeros(HEADER.shape, device="meta"), HEADER)
    end.flush()
    assert [work.waited for work in wire.works] == [[timedelta(seconds=5)], [None]]


def test_message_that_is_not_taken_is_named(wired: Any) -> None:
    """What became of the other rank stands behind what was waited for."""
    wired("Connection closed by peer [127.0.0.1]\nmore")
    end = on("cpu", staged=False)
    end.send(torch.zeros(HEADER.shape), HEADER)
    said = r"^rank 0 waited for .*: sample 0 .* for rank 1: Connection .*\]$"
    with pytest.raises(LostMessage, match=said):
        end.flush()
