"""The default process group of torch.distributed.

Their rendezvous store is a file of their gang, or hosted by whoever started the ranks.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import cache
from itertools import count
from threading import Thread
from time import sleep
from typing import Any, Final

import torch
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from gpubench_plugin.core.errors import MeasurementError, UsageProblem
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.ranks.control_plane import ControlPlane
from gpubench_plugin.ranks.world import SESSION, STORE, World
from gpubench_plugin.system.timeout_clock import TimeoutClock

TIMEOUT: Final = timedelta(minutes=30)
"""Of waiting for the slowest rank: longer than any benchmark or compilation."""

_NEEDS: Final = {"nccl": "cuda", "xccl": "xpu"}
"""Device type of a backend."""

_POLL_S: Final = 0.0001
"""About as long as a gloo barrier of two ranks, 0.12 ms."""
_LEAVE_TIMEOUT_S: Final = 1.0
"""Destroying a group takes under 50 ms unless an operation is pending."""

_groups = count()


class ProcessGroup:
    """The ranks of `world`; the constructor joins the group, :meth:`close` leaves it.

    The default group, for collectives, has the `backend`; `control` messages and the `agreement`
    have a store and a group of their own. An existing default group, for example of a conftest, is
    used with its own backend and outlives this. With `shares_device`, all ranks of a host use one
    `device`.

    Raises:
        UsageProblem: the backend does not support the device, the rendezvous failed, or an existing
            default group contradicts the environment.
    """

    def __init__(
        self,
        world: World,
        *,
        device: torch.device,
        backend: str = "auto",
        shares_device: bool = False,
    ):
        self.world = world
        self.shares_device = shares_device
        self.device = rank_device(device, world, shares_device=shares_device)
        self.backend = backend_for(device, backend, shares_device=shares_device)
        prefix = f"gpubench/{os.environ.get(SESSION, '')}/{next(_groups)}"
        store = PrefixStore(prefix, store_for(world))
        with ExitStack() as exit_stack:
            exit_stack.enter_context(_bind_gloo_to_loopback(world))
            self._join_default_group(PrefixStore("group", store), exit_stack)
            group = None if world.size == 1 else dist.new_group(backend="gloo", timeout=TIMEOUT)
            if group is not None:
                exit_stack.callback(_leave, group)
            self.agreement = RankAgreement(group)
            self._exit_stack = exit_stack.pop_all()
        self.control = ControlPlane(PrefixStore("control", store), world, timeout=TIMEOUT)

    @property
    def is_joined(self) -> bool:
        """Whether the default group still exists."""
        return dist.is_initialized() and self._default == dist.group.WORLD

    @property
    def is_replaceable(self) -> bool:
        """Whether the group can be replaced in these processes, whatever its state.

        An unfinished operation of NCCL or XCCL can block the device itself; an existing default
        group is not ours to replace.
        """
        return self._is_ours and self.backend == "gloo"

    def is_healthy(self, timeout_s: float) -> bool:
        """Whether all ranks can still communicate in both groups; equal on all ranks.

        Every rank must call it. Takes up to three times `timeout_s`.
        """
        if self.world.size == 1:
            return self.is_joined
        own_report = {"healthy": self._passes_barriers(timeout_s)}
        is_healthy = False
        with suppress(dist.DistError):  # the store is gone
            with suppress(MeasurementError):  # a rank is late
                reports = list(self.control.collect("health", own_report, timeout_s=timeout_s))
                is_healthy = all(report["healthy"] for report in reports)
            return self.control.decide("health", is_healthy, timeout_s=2 * timeout_s)
        return False

    def close(self) -> None:
        """Destroy the groups created here; idempotent.

        A gloo group ends with its last operation, perhaps after half an hour: in a thread if it
        takes long.
        """
        self._exit_stack.pop_all().close()
        groups = [self.__dict__.pop(name, None) for name in ("_default", "agreement")]
        leaver = Thread(target=groups.clear, name="gpubench-leaving", daemon=True)
        leaver.start()
        leaver.join(_LEAVE_TIMEOUT_S)

    def _passes_barriers(self, timeout_s: float) -> bool:
        """Whether this rank completes two barriers in both groups in time.

        If a benchmark left a barrier unfinished, the second one times out. Barriers have no data:
        gloo aborts the process if the sizes of two operations differ.
        """
        if not self.is_joined:
            return False
        groups = [self.agreement.group]
        # NCCL's barrier would use a device that the project's own group may not be meant for.
        if self._is_ours or "gloo" in dist.get_backend(self._default):
            groups.append(self._default)
        clock = TimeoutClock()
        # A connection may be lost, or the group destroyed.
        with suppress(RuntimeError, ValueError):
            for group in 2 * groups:
                work = dist.barrier(group, async_op=True)
                while not work.is_completed():
                    if clock.remaining(timeout_s) <= 0:
                        return False
                    sleep(_POLL_S)
                work.wait()
            return True
        return False

    def _join_default_group(self, store: PrefixStore, exit_stack: ExitStack) -> None:
        self._is_ours = not dist.is_initialized()
        if not self._is_ours:
            _check_existing(self.world)
            self._default = dist.group.WORLD
            return
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        # With a device, NCCL connects now instead of within the first step.
        binds = self.backend == "nccl" and self.world.size > 1
        dist.init_process_group(
            self.backend,
            store=store,
            rank=self.world.rank,
            world_size=self.world.size,
            timeout=TIMEOUT,
            device_id=self.device if binds else None,
        )
        self._default = dist.group.WORLD
        exit_stack.callback(_leave, self._default)


def backend_for(
    device: torch.device, configured: str = "auto", *, shares_device: bool = False
) -> str:
    """Backend for `device`: NCCL on CUDA, XCCL on XPU, gloo elsewhere.

    With `shares_device` it is gloo, since NCCL takes one rank per device.

    Raises:
        UsageProblem: NCCL or XCCL is configured on another device, on a shared one, or in a torch
            built without it.
    """
    if reason := backend_refusal(device.type, configured, shares_device=shares_device):
        raise UsageProblem(reason)
    if shares_device:
        return "gloo"
    if configured == "auto":
        if device.type == "cuda" and dist.is_nccl_available():
            return "nccl"
        return "xccl" if device.type == "xpu" and dist.is_xccl_available() else "gloo"
    return configured


def backend_refusal(device_type: str, configured: str, *, shares_device: bool = False) -> str:
    """Reason why the `configured` backend cannot be used; empty if it can."""
    needed = _NEEDS.get(configured)
    if needed is None:
        return ""
    if shares_device:
        problem = "requires one device per rank, unlike distributed.share_device"
    elif device_type != needed:
        problem = f"requires {needed}, not {device_type}"
    elif not getattr(dist, f"is_{configured}_available")():
        problem = "this torch was built without it"
    else:
        return ""
    return f"distributed.backend={configured!r}: {problem}; allowed: auto, gloo"


def rank_device(device: torch.device, world: World, *, shares_device: bool = False) -> torch.device:
    """This rank's device: on CUDA and XPU by local rank, unless it has an index.

    With `shares_device`, the device with that index, else the first.

    Raises:
        UsageProblem: one device for several ranks.
    """
    if device.type not in {"cuda", "xpu"}:
        return device
    own_index = 0 if shares_device else world.local_rank
    index = own_index if device.index is None else device.index
    if not shares_device and world.local_size > 1 and index != own_index:
        raise UsageProblem(
            f"device {device}: a single device for {world.local_size} ranks; use "
            f"{device.type} so that each rank takes its own, or add "
            "distributed.share_device=true"
        )
    return torch.device(device.type, index)


def _leave(group: dist.ProcessGroup | None) -> None:
    with suppress(ValueError):  # the benchmark has destroyed it
        dist.destroy_process_group(group)


def _check_existing(world: World) -> None:
    existing = (dist.get_rank(), dist.get_world_size())
    if existing != (world.rank, world.size):
        raise UsageProblem(
            f"the existing default process group is rank {existing[0]} of {existing[1]}, but "
            f"the environment says rank {world.rank} of {world.size}; start the ranks with "
            "torchrun"
        )


@contextmanager
def _bind_gloo_to_loopback(world: World) -> Iterator[None]:
    """Bind gloo to the loopback interface if all ranks are on this host, unless configured."""
    variable = "GLOO_SOCKET_IFNAME"
    if variable in os.environ or not (world.size == 1 or on_loopback()):
        yield
        return
    os.environ[variable] = "lo0" if sys.platform == "darwin" else "lo"
    try:
        yield
    finally:
        os.environ.pop(variable, None)


def store_for(world: World) -> Store:
    """The store of `world`, one per process; for a single rank in memory, without a port.

    Raises:
        UsageProblem: the rendezvous at the address in the environment failed.
    """
    if world.size > 1:
        return _shared_store()
    store: Store = dist.HashStore()  # type: ignore[attr-defined] # torch does not declare it
    return store


def on_loopback() -> bool:
    """Whether the rendezvous is on the loopback interface, so that all ranks are on this host."""
    address = os.environ.get("MASTER_ADDR", "localhost")
    return address in {"localhost", "::1"} or address.startswith("127.")


@cache
def _shared_store() -> Store:
    """The store in a gang's private folder, else the one that is hosted for all ranks."""
    store: Store
    # Out of the environment, which processes that a test starts as ranks of their own inherit.
    if path := os.environ.pop(STORE, ""):
        # Without a number of ranks, whose last one would delete the file: the gang does.
        store = dist.FileStore(path)  # type: ignore[attr-defined] # not declared either
        return store
    return hosted_store()


def hosted_store(*, serves: bool = False, timeout_s: float = 300.0) -> Store:
    """The store at the address in the environment, hosted here or by whoever started the ranks.

    Raises:
        UsageProblem: it cannot be served there, or nobody does so within `timeout_s`.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    options: dict[str, Any] = {}
    try:
        if serves and on_loopback():  # torch itself would listen on every interface
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.create_server((address, port), family=family)
            options = {"master_listen_fd": listener.detach(), "use_libuv": False}
        store: Store = dist.TCPStore(  # type: ignore[attr-defined] # torch does not declare it
            address,
            port,
            is_master=serves,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            **options,
        )
    except (OSError, dist.DistError) as error:
        message = f"MASTER_ADDR={address} MASTER_PORT={port}: rendezvous failed: {error}"
        raise UsageProblem(message) from error
    return store
