"""Which launcher runs a session, and what the store that one serves opens."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from torch import distributed as dist

from gpubench_plugin.core import catalog
from gpubench_plugin.launchers import controller
from gpubench_plugin.launchers.context import CONTEXT, STATE
from gpubench_plugin.launchers.controller import Controller
from gpubench_plugin.launchers.ways import base, torchrun
from gpubench_plugin.launchers.ways.gang import FreshProcess, Gang
from gpubench_plugin.ranks import process_group
from gpubench_plugin.session import start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.launchers.ways.base import Launcher


class Mine(Gang):
    """A launcher of another distribution."""

    claims = classmethod(lambda cls, context, cases: len(cases) == 1)


def test_launchers_of_others_are_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they do not claim is run by one of ours, and by one alone."""
    monkeypatch.setattr(dist, "is_initialized", lambda: False)  # whatever other tests have left
    kinds = {name: catalog.load("launchers", name) for name in catalog.choices("launchers")}
    monkeypatch.setattr(catalog, "choices", lambda _: [*kinds, "mine"])
    monkeypatch.setattr(catalog, "load", lambda _, name: kinds.get(name, Mine))

    def launcher(cases: int, started: int | None = None, *, isolate: bool = False) -> object:
        settings = SimpleNamespace(isolate=isolate, launches=1, world_sizes=())
        ranks = SimpleNamespace(started_world_size=started)
        context: Any = SimpleNamespace(settings=settings, ranks=ranks)
        case: Any = SimpleNamespace(world_size=1)
        found = base.launcher_of(context, [case] * cases)
        return found and type(found)

    assert launcher(1) is launcher(1, isolate=True) is Mine
    assert launcher(2) is launcher(0, 2) is launcher(0, 2, isolate=True) is None
    assert (launcher(2, isolate=True), launcher(2, 2)) == (Gang, torchrun.Torchrun)


def test_alarm_is_confirmed_in_the_way_in_which_it_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ranks of one launcher measured is compared with no other's."""

    class Played(Controller):
        def __init__(self, config: object, launcher: Launcher, run: Path = Path()):
            self.launcher = launcher

        def remeasure(self, items: object, rounds: object) -> Iterator[Any]:
            yield self.launcher

        def close(self) -> None:
            pass

    monkeypatch.setattr(controller, "Controller", Played)
    context = SimpleNamespace(
        ranks=SimpleNamespace(started_world_size=None), settings=SimpleNamespace(on="")
    )
    config: Any = SimpleNamespace(stash={CONTEXT: context}, getoption=lambda *_: None)
    items = [
        SimpleNamespace(stash={STATE: SimpleNamespace(case=SimpleNamespace(adopted=adopted))})
        for adopted in (True, False)
    ]
    in_process = SimpleNamespace(replaces_ranks=True)
    for launcher, kind in ((Played(config, Mine()), Mine), (in_process, Gang)):
        confirmation: Any = start._confirmation(config, recording=Any, launcher=launcher)
        assert [type(way) for way in confirmation.launch(items, {})] == [kind, FreshProcess]
        assert [type(way) for way in confirmation.launch(items[1:], {})] == [kind]


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_store_that_the_controller_serves_is_open_to_its_host_alone(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Torch itself would listen on every interface."""
    heard = []

    def store(*_: object, master_listen_fd: int, **__: object) -> None:
        with socket.socket(fileno=master_listen_fd) as listener:
            heard.append(listener.getsockname()[0])

    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", "0")
    monkeypatch.setattr(dist, "TCPStore", store)
    process_group.hosted_store(serves=True)
    assert heard == ["::1" if address == "::1" else "127.0.0.1"]
