"""Nodes of a Ray cluster, or a cluster of its own on this host."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted
from gpubench_plugin.core.records import Json
from gpubench_plugin.engines._ray_node import Chunk, Receiver, node_name, run
from gpubench_plugin.engines.base import Capacity, Engine, JobStatus, Shard, State
from gpubench_plugin.engines.local import locks_on, whole_host
from gpubench_plugin.environment.code import folders_without
from gpubench_plugin.system.child_process import ChildError, facts_of
from gpubench_plugin.system.signals import signals_deferred

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import EngineSection

_PROBE_S: Final = 60.0
_PROBE: Final = """import json, sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False)
except Exception as error:
    sys.exit(" ".join(str(error).split()))
print(json.dumps(ray.nodes()))"""
_OWN: Final = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20}
"""A cluster of its own has no processes ready for tasks, and little memory for large objects."""
_TASK: Final = {"num_cpus": 0, "max_retries": 0, "num_returns": "streaming"}


@dataclass(kw_only=True)
class _Job:
    shard: Shard
    receiver: Receiver
    needs: dict[str, float]
    selector: dict[str, str]
    group: Any = None
    nodes: set[str] = field(default_factory=set)
    """Beginnings of the ids of those on which it runs."""
    codes: list[int] = field(default_factory=list)
    status: JobStatus = field(default_factory=lambda: JobStatus(state="queued"))


class Ray(Engine):
    """A task for each shard, which takes one of its node's resource ``bench``, and a GPU if any.

    A CPU would not do: Ray gives it to others while a task waits. A shard on several nodes is a
    placement group, in which torchrun starts the ranks.
    """

    poll_interval_s: ClassVar[float] = 0.5

    def __init__(self, target: str, section: EngineSection):
        super().__init__(target, section)
        if "://" in target:
            advice = "start the session on a machine of the cluster, with ray:auto or ray:HOST:PORT"
            raise UsageProblem(f"--on=ray:{target}: {advice}")
        self._jobs: dict[str, _Job] = {}
        self._streams: dict[Any, tuple[str, int]] = {}
        """What each task yields: of which job, and of which of its nodes."""
        self._ray: Any = None
        """The package, once this session has joined the cluster."""
        self._held = ExitStack()
        self._has_gpus = False

    def describe(self) -> Capacity:
        """The nodes with ``bench``; a cluster of its own starts with the first shards."""
        if find_spec("ray") is None:
            raise UsageProblem("--on=ray needs Ray: pip install 'pytest-gpubench[ray]'")
        nodes = _usable(self._cluster()) if self.target else [{"Resources": _own_resources()}]
        if not nodes:
            start = """ray start --address=HOST:PORT --resources='{"bench": 1}'"""
            raise UsageProblem(f"--on=ray:{self.target}: no node offers bench; start some: {start}")
        hosts = max(1, len(nodes) // self.section.nodes)
        slots = int(_total(nodes, "bench")) if self.section.nodes == 1 else hosts
        place = f"{counted(len(nodes), 'node')} of Ray" if self.target else "Ray on this host"
        text = f"{counted(slots, 'slot')} on {place}"
        self._has_gpus = _total(nodes, "GPU") > 0
        return Capacity(slots=slots, hosts=hosts, text=text, gpus=self._has_gpus)

    def _cluster(self) -> Any:
        """Its nodes, by a process that can be ended: Ray tries for minutes, deaf to signals."""
        try:
            return facts_of([sys.executable, "-c", _PROBE, self.target], timeout_s=_PROBE_S)
        except ChildError as error:
            raise UsageProblem(f"--on=ray:{self.target}: {error}") from None

    def submit(self, shards: Sequence[Shard]) -> list[str]:
        """Give them to Ray, and the code before the first of them."""
        if self._ray is None:
            self._connect(shards[0].rootdir)
        return [self._submit(shard) for shard in shards]

    def _connect(self, rootdir: Path) -> None:
        os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"  # generated code travels, too
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"  # of tasks that were killed
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        own: dict[str, Any] = {}
        if not self.target:
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # it listens on loopback alone
            resources = _own_resources()
            own = {**_OWN, "num_gpus": resources.pop("GPU"), "resources": resources}
            if (locks := locks_on(whole_host())) is None:
                raise UsageProblem("--on=ray: another session measures on this host")
            self._held.enter_context(locks)
        import ray

        self._held.callback(ray.shutdown)

        # As patterns of .gitignore; Ray leaves out what .rayignore names, too.
        excludes = [re.sub(r"([\\*?\[\] ])", r"\\\1", f"/{f}") for f in folders_without(rootdir)]
        own["runtime_env"] = {"working_dir": os.fspath(rootdir), "excludes": excludes}
        try:
            with signals_deferred():  # Ray puts a handler in the place of ours
                ray.init(self.target or "local", log_to_driver=False, logging_level="ERROR", **own)
            ray._private.worker._worker_logs_enabled = False  # it prints what a lost node logged
        except Exception as error:  # of many classes
            hint = "; name large files in .rayignore" if "exceeds" in str(error) else ""
            raise UsageProblem(f"--on=ray: {_sentence(error)}{hint}") from error
        self._ray = ray

    def _submit(self, shard: Shard) -> str:
        nodes, count = _usable(self._ray.nodes()), self.section.nodes
        needs = {"bench": 1.0}
        if self._has_gpus:
            needs["GPU"] = self.section.ranks_per_node if count > 1 else 1.0
        if shard.is_alone and nodes:
            largest = max(nodes, key=lambda node: _total([node], "bench"))
            needs = {name: _total([largest], name) for name in needs}
        names = {n["NodeID"]: node_name(n["NodeManagerHostname"], n["NodeID"]) for n in nodes}
        avoid = [node_id for node_id, name in names.items() if name in shard.avoid]
        # Where there are no others, better there than never.
        is_choice = avoid and len(nodes) - len(avoid) >= count
        selector = {"ray.io/node-id": f"!in({','.join(avoid)})"} if is_choice else {}
        job = _Job(shard=shard, receiver=Receiver(shard.folder), needs=needs, selector=selector)
        if count > 1:
            job.group = self._ray.util.placement_group(
                [needs] * count, "STRICT_SPREAD", bundle_label_selector=[selector] * count
            )
        name = f"{shard.name}-{secrets.token_hex(4)}"
        self._jobs[name] = job
        self._begin(name)
        return name

    def _begin(self, name: str, rank: int = 0, endpoint: str = "") -> None:
        """Begin the task on one of a job's nodes."""
        job = self._jobs[name]
        launcher: list[str] = []
        place: dict[str, Any] = {"label_selector": job.selector}
        if job.group is not None:
            strategies = self._ray.util.scheduling_strategies
            bundle = strategies.PlacementGroupSchedulingStrategy(job.group, rank)
            place = {"scheduling_strategy": bundle}
            launcher = [
                *("-m", "torch.distributed.run", f"--nnodes={self.section.nodes}"),
                *(f"--nproc-per-node={self.section.ranks_per_node}", f"--rdzv-id={name}"),
                *("--rdzv-backend=c10d", f"--rdzv-conf=is_host={str(rank == 0).lower()}"),
                *("--rdzv-endpoint={endpoint}", "--local-addr={address}"),
            ]
        own = {name: need for name, need in job.needs.items() if name != "GPU"}
        task = self._ray.remote(run).options(
            **_TASK, **place, num_gpus=job.needs.get("GPU", 0), resources=own
        )
        seeds = {file.name: file.read_bytes() for file in job.shard.folder.glob("*.json")}
        self._streams[task.remote(job.shard, seeds, launcher, endpoint)] = name, rank

    def poll(self, jobs: Collection[str]) -> Mapping[str, JobStatus]:
        """How they stand, once all is written that has arrived."""
        self._drain()
        alive = {n["NodeID"][:8] for n in (self._ray.nodes() if self._jobs else ()) if n["Alive"]}
        for name, job in self._jobs.items():
            if job.status.state == "running" and not job.nodes <= alive:
                self._end(name, "lost", "its node is dead")  # the task itself may not tell it
        statuses = {n: self._jobs[n].status for n in jobs if n in self._jobs}
        queued = [n for n, status in statuses.items() if status.state == "queued"]
        return statuses | (self._waiting(queued) if queued else {})

    def _waiting(self, queued: Collection[str]) -> dict[str, JobStatus]:
        """With what these jobs wait for."""
        nodes, free, statuses = _usable(self._ray.nodes()), self._ray.available_resources(), {}
        for name in queued:
            needs, count = self._jobs[name].needs, self.section.nodes
            what = ", ".join(f"{resource}: {need:g}" for resource, need in needs.items())
            able = [n for n in nodes if all(_total([n], r) >= need for r, need in needs.items())]
            total = {resource: _total(nodes, resource) for resource in needs}
            used = ", ".join(f"{n - free.get(r, 0):g} of {n:g}" for r, n in total.items())
            reason = f"waits for {what}; {used} in use"
            if len(able) < count:
                reason = f"needs {counted(count, 'node')} with {what}, the cluster has {len(able)}"
            statuses[name] = JobStatus(state="queued", reason=reason)
        return statuses

    def _drain(self) -> None:
        while streams := [*self._streams]:
            ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
            for stream in ready:
                if stream in self._streams:  # its job may have ended meanwhile
                    self._take(stream, *self._streams[stream])
            if not ready:
                return

    def _take(self, stream: Any, name: str, rank: int) -> None:
        """Take the next of what a task yields, or its end."""
        job = self._jobs[name]
        try:
            item = self._ray.get(next(stream))
        except (StopIteration, self._ray.exceptions.RayError) as error:
            is_cancelled = isinstance(error, self._ray.exceptions.TaskCancelledError)
            self._end(name, "cancelled" if is_cancelled else "lost", _sentence(error))
            return
        match item:
            case Chunk():
                job.receiver.take(item)
            case int():
                job.codes.append(item)
                del self._streams[stream]
                if len(job.codes) == self.section.nodes:
                    self._end(name, "ended")
            case node, endpoint:
                job.nodes.add(node.rpartition("-")[2])
                if rank == 0:
                    job.status = JobStatus(state="running", node=node)
                    for other in range(1, self.section.nodes):
                        self._begin(name, other, endpoint)

    def _end(self, name: str, state: State, reason: str = "") -> None:
        job = self._jobs[name]
        code = next(filter(None, job.codes), 0) if state == "ended" else None
        job.status = replace(job.status, state=state, reason=reason, code=code)
        for stream in [s for s, (owner, _) in self._streams.items() if owner == name]:
            del self._streams[stream]
            self._ray.cancel(stream, force=True)
        if job.group is not None:
            self._ray.util.remove_placement_group(job.group)

    def cancel(self, jobs: Collection[str]) -> None:
        """Kill their processes."""
        for name in jobs:
            if name in self._jobs and self._jobs[name].status.state in {"queued", "running"}:
                self._end(name, "cancelled")

    def close(self) -> None:
        """Leave the cluster, with which all tasks end; one of its own ends, too."""
        self._held.close()


def _own_resources() -> dict[str, float]:
    gpus = len(whole_host().gpus)
    return {"bench": gpus or 1, "GPU": gpus}


def _usable(nodes: Sequence[Json]) -> list[Json]:
    """The living `nodes`, as Ray describes them, that offer ``bench``."""
    return [node for node in nodes if node["Alive"] and _total([node], "bench") >= 1]


def _total(nodes: Sequence[Json], resource: str) -> float:
    return float(sum(node["Resources"].get(resource, 0) for node in nodes))


def _sentence(error: Exception) -> str:
    """The first sentence of Ray's `error`, or of what a task raised."""
    text = str(getattr(error, "cause", error)).removeprefix("Failed to set up runtime environment.")
    text = text.strip().partition("\n")[0]
    return text.partition(". ")[0] or type(error).__name__
