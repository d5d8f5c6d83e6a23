"""When a collective is not measured, and why; each of these reasons holds on all ranks."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from gpubench_plugin.core.errors import Misuse, Unsupported
from gpubench_plugin.ranks.process_group import RankAgreement
from gpubench_plugin.ranks.world import World
from gpubench_plugin.training.timed_collective import TimedCollective, exchange
from gpubench_plugin.workloads.collectives.all_reduce import AllReduce

CPU = torch.device("cpu")


class Told:
    """A group of two in which the other rank has said how much memory it has."""

    backend = "gloo"
    shares_device = False
    agreement = RankAgreement()

    def __init__(self, *, free: int = 2**40, size: int = 2):
        self.world = World(size=size, local_size=size)
        self.control = self
        self._free = free

    def gather(self, tag: str, record: dict[str, Any]) -> list[dict[str, Any]]:
        return [record, {"free": self._free}]

    def publish(self, tag: str, record: dict[str, Any]) -> dict[str, Any]:
        return record


def ask(name: str, size: str, group: Told, largest_bytes: int | None = None) -> TimedCollective:
    return exchange(name, size, group=group, device=CPU, largest_bytes=largest_bytes)  # type: ignore[arg-type] # a stand-in


def test_larger_than_the_configuration_allows() -> None:
    """The reason names the key; the largest size itself is measured."""
    ask("all-reduce", "1KiB", Told(), largest_bytes=1024)
    with pytest.raises(Unsupported, match=r"distributed\.largest_message_bytes=1024"):
        ask("all-reduce", "2KiB", Told(), largest_bytes=1024)


def test_too_little_memory_on_another_rank() -> None:
    """Given, received and expected must fit."""
    ask("all-reduce", "1KiB", Told(free=3072))
    least = r"all-reduce of 1KiB: needs 3\.000 KiB per rank, but only 2\.000 KiB are free"
    with pytest.raises(Unsupported, match=least):
        ask("all-reduce", "1KiB", Told(free=2048))


def test_one_rank_alone() -> None:
    """It has nobody to exchange anything with."""
    with pytest.raises(Unsupported, match="send-recv: requires at least 2 ranks"):
        ask("send-recv", "1KiB", Told(size=1))


def test_unknown_names_and_sizes() -> None:
    """Both are refused with what there is."""
    with pytest.raises(Misuse, match="did you mean 'all-reduce'"):
        ask("allreduce", "1KiB", Told())
    with pytest.raises(Misuse, match="message size '1kb'; allowed: an integer with B, KiB"):
        ask("all-reduce", "1kb", Told())


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            RuntimeError("Backend gloo does not support reduce\nException raised from …"),
            Unsupported,
            "^gloo does not support all-reduce here: Backend gloo does not support reduce$",
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
