"""Rendezvous store of the ranks, hosted by torchrun or by rank zero."""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import TYPE_CHECKING

from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.ranks.world import LISTENER, World

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store


def store_for(world: World) -> Store:
    """The store of `world`, one per process; for a single rank in memory, without a port.

    Raises:
        UsageProblem: the rendezvous at the address in the environment failed.
    """
    if world.size > 1:
        return _shared_store(world)
    store: Store = dist.HashStore()  # type: ignore[attr-defined] # torch does not declare it
    return store


def on_loopback() -> bool:
    """Whether the rendezvous is on the loopback interface, so that all ranks are on this host."""
    address = os.environ.get("MASTER_ADDR", "localhost")
    return address in {"localhost", "::1"} or address.startswith("127.")


@cache  # rank zero may host it: it must outlive the groups
def _shared_store(world: World) -> Store:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        if world.is_root and on_loopback() and not _is_hosted():
            return _serve_store(_listening_socket(port), port, world.size)
        store: Store = next(rendezvous("env://", world.rank, world.size))[0]
    except (OSError, dist.DistError) as error:
        message = f"MASTER_ADDR={address} MASTER_PORT={port}: rendezvous failed: {error}"
        raise UsageProblem(message) from error
    return store


def _is_hosted() -> bool:
    """Whether torchrun or an existing default group hosts the store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" or dist.is_initialized()


def _listening_socket(port: int) -> int:
    """Loopback-only listening socket, inherited or created; its descriptor."""
    if inherited := os.environ.get(LISTENER):
        return int(inherited)
    family = socket.AF_INET6 if os.environ["MASTER_ADDR"] == "::1" else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
        listener.listen()
        return listener.detach()


def _serve_store(listener: int, port: int, size: int) -> Store:
    """TCPStore on `listener`, since torch itself would listen on every interface."""
    store: Store = dist.TCPStore(  # type: ignore[attr-defined] # torch does not declare it
        os.environ["MASTER_ADDR"],
        port,
        size,
        is_master=True,
        master_listen_fd=listener,
        use_libuv=False,
    )
    return store
