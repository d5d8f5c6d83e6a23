"""When a collective is not measured, and why; each of these reasons holds on all ranks."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from gpubench_plugin.core.errors import Misuse, Unsupported
from gpubench_plugin.ranks.process_group import RankAgreement
from gpubench_plugin.ranks.world import World
from gpubench_plugin.training import timed_collective
from gpubench_plugin.training.timed_collective import TimedCollective, exchange
from gpubench_plugin.workloads.collectives.all_reduce import AllReduce

CPU = torch.device("cpu")


class Told:
    """A group of two in which the other rank has said how much memory it has."""

    backend = "gloo"
    shares_device = False

    def __init__(self, *, others_fit: bool = True, size: int = 2):
        self.world = World(size=size, local_size=size)
        self.agreement = RankAgreement()
        if not others_fit:
            self.agreement.mean = lambda _: [0.5]  # type: ignore[method-assign] # a stand-in


def ask(name: str, size: str, group: Told, largest_bytes: int | None = None) -> TimedCollective:
    return exchange(name, size, group=group, device=CPU, largest_bytes=largest_bytes)  # type: ignore[arg-type] # a stand-in


def test_larger_than_the_configuration_allows() -> None:
    """The reason names the key; the largest size itself is measured."""
    ask("all-reduce", "1KiB", Told(), largest_bytes=1024)
    with pytest.raises(Unsupported, match=r"distributed\.largest_message_bytes=1024"):
        ask("all-reduce", "2KiB", Told(), largest_bytes=1024)


def test_too_little_memory_on_another_rank() -> None:
    """Given, received and expected must fit, here and on every other rank."""
    with mock.patch.object(timed_collective, "free_bytes", return_value=3072) as free:
        ask("all-reduce", "1KiB", Told())
        free.return_value = 3071
        with pytest.raises(Unsupported, match=r"1KiB: needs 3\.000 KiB on every rank; .* KiB here"):
            ask("all-reduce", "1KiB", Told())
    with pytest.raises(Unsupported, match=r"needs 3\.000 KiB on every rank"):
        ask("all-reduce", "1KiB", Told(others_fit=False))


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
