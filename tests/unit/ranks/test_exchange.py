"""When a collective is not measured, and why; each of these reasons holds on all ranks."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import psutil
import pytest
import torch

from gpubench_plugin.core.errors import Misuse, Unsupported
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.ranks.world import World
from gpubench_plugin.training import timed_collective
from gpubench_plugin.training.timed_collective import TimedCollective, exchange, free_bytes, parse
from gpubench_plugin.workloads.collectives.all_reduce import AllReduce

CPU = torch.device("cpu")


class Told:
    """A group of two in which the other rank has said how much memory it has."""

    backend = "gloo"
    device = CPU
    shares_device = False

    def __init__(self, *, others_fit: bool = True, size: int = 2):
        self.world = World(size=size, local_size=size)
        self.agreement = RankAgreement()
        if not others_fit:
            self.agreement.mean = lambda _: [0.5]  # type: ignore[method-assign] # a stand-in


def ask(name: str, size: str, group: Told, largest_bytes: int | None = None) -> TimedCollective:
    return exchange(
        name,
        size,
        group=group,  # type: ignore[arg-type] # a stand-in
        largest_bytes=largest_bytes,
        computed_in="fp32",
    )


def test_too_little_memory_on_another_rank() -> None:
    """Given, received and expected must fit, here and on every other rank."""
    with mock.patch.object(timed_collective, "free_bytes", return_value=3072) as free:
        ask("all-reduce", "1KiB", Told())
        free.return_value = 3071
        with pytest.raises(Unsupported, match=r"1KiB: needs 3\.000 KiB on every rank; .* KiB here"):
            ask("all-reduce", "1KiB", Told())
    with pytest.raises(Unsupported, match=r"needs 3\.000 KiB on every rank"):
        ask("all-reduce", "1KiB", Told(others_fit=False))


@pytest.mark.parametrize(
    ("kind", "name", "size", "told", "said"),
    [
        (Unsupported, "all-reduce", "2KiB", Told(), r"distributed\.largest_message_bytes=1024"),
        (Unsupported, "send-recv", "1KiB", Told(size=1), "send-recv: requires at least 2 ranks"),
        (Misuse, "allreduce", "1KiB", Told(), "did you mean 'all-reduce'"),
        (Misuse, "all-reduce", "1kb", Told(), "size '1kb'; allowed: an integer with B, KiB"),
    ],
)
def test_what_cannot_be_exchanged_is_refused(
    kind: type[Exception], name: str, size: str, told: Told, said: str
) -> None:
    """Larger than is allowed, of one rank alone, or of a name or size that is none."""
    ask("all-reduce", "1KiB", Told(), largest_bytes=1024)
    with pytest.raises(kind, match=said):
        ask(name, size, told, largest_bytes=1024)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            RuntimeError("Backend gloo does not support reduce\nException …"),
            Unsupported,
            "^gloo does not support all-reduce here: Backend .* reduce$",
        ),
        (NotImplementedError("not implemented"), Unsupported, "gloo does not support all-reduce"),
        (RuntimeError("Connection closed by peer"), RuntimeError, "^Connection closed by peer$"),
    ],
)
def test_backend_without_the_collective(
    error: Exception, kind: type[BaseException], said: str
) -> None:
    """What a backend lacks is unsupported; any other failure stays one."""
    subject = ask("all-reduce", "1KiB", Told())
    with mock.patch.object(AllReduce, "run", side_effect=error), pytest.raises(kind, match=said):
        subject.prepare(print)


@pytest.mark.parametrize(
    ("device", "shared", "expected"),
    [("cpu", False, 2**20), ("cuda:1", False, 2**30), ("cuda:1", True, 2**29)],
)
def test_ranks_share_a_host_or_one_device(
    device: str, shared: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what is available for each of two ranks, unless a rank has its device to itself."""
    fake = SimpleNamespace(mem_get_info=lambda device: (2**30, 2**34))
    monkeypatch.setattr(torch, "get_device_module", lambda device: fake)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**21))
    assert free_bytes(torch.device(device), local_ranks=2, shared=shared) == expected


def test_sizes_are_binary() -> None:
    """A kibibyte has 1024 bytes."""
    assert [parse(text) for text in ("100B", "1KiB", "64MiB", "1GiB")] == [
        100,
        1024,
        64 * 2**20,
        2**30,
    ]


@pytest.mark.parametrize("text", ["1KB", "1.5MiB", "0B", "KiB", "-1B", "1 KiB", ""])
def test_anything_else_is_refused(text: str) -> None:
    """The message shows what was given."""
    with pytest.raises(Misuse, match=f"message size {text!r}"):
        parse(text)
