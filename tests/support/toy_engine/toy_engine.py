"""Engines of another distribution: simulated nodes on this machine, with faults by a plan.

A node runs one shard at a time, in a process. The JSON file that the variable :data:`PLAN` names
has the fields of :class:`Plan`, and what was done is appended to its `log`, one JSON line each.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from gpubench_plugin.engines.base import (
    DEADLINE,
    FOLDER,
    OUTPUT,
    Capacity,
    Engine,
    JobStatus,
    Shard,
    State,
)
from gpubench_plugin.system.child_process import Child

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import EngineSection

PLAN: Final = "TOY_ENGINE"
_REPORTS: Final = "reports.jsonl"
_GROWING: Final = {".jsonl", ".txt"}
_GRACE_S: Final = 8.0
_BLOCKED_BYTES: Final = 100
"""Of files that a full disk lets grow: none that a shard has begun to write."""

Kind = Literal["lost", "crashed", "cancelled", "preempted", "limited", "full", "requeued"]
_STATES: Final[Mapping[str, State]] = {
    "lost": "lost",
    "cancelled": "cancelled",
    "preempted": "cut",
    "limited": "cut",
}
"""How a job ends that the engine ends; others end by themselves."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Meets the `start`-th start of a shard, from 0, so long after it has begun so many tests.

    One that is `limited` is ended by so much time after its start. On a `full` disk files may grow
    to so many `bytes`; by default none.
    """

    kind: Kind
    start: int
    tests: int = 0
    after_s: float = 0.0
    bytes: int = _BLOCKED_BYTES


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the nodes are like, and what happens to them.

    Nodes that are not `shared` have folders of their own, copied to the front in pieces that are
    drawn by the `seed`, and lost with them. One that was lost is sick for `sick_s`, or until it has
    lost what runs there next. Before the first start, the shell runs `before` in the session's
    folder. All have the variables `environ`, and those that are `unequal` their own besides.
    """

    faults: tuple[Fault, ...] = ()
    shared: bool = True
    seed: int = 0
    sick_s: float = 0.0
    before: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    unequal: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    log: str = os.devnull

    @classmethod
    def read(cls) -> Self:
        """The plan of this session; without faults if there is none."""
        path = os.environ.get(PLAN)
        fields = json.loads(Path(path).read_text()) if path else {}
        return cls(**{**fields, "faults": tuple(Fault(**f) for f in fields.get("faults", ()))})

    def write(self, path: Path) -> dict[str, str]:
        """Write it; the variable of sessions that are to follow it."""
        path.write_text(json.dumps(asdict(self)))
        return {PLAN: str(path)}


@dataclass(kw_only=True, eq=False)
class _Job:
    name: str
    shard: Shard
    place: Path
    child: Child | None = None
    node: str = ""
    fault: Fault | None = None
    met_s: float | None = None
    state: State = "queued"
    code: int | None = None
    ending: tuple[Kind, float] | None = None
    """Why it was asked to end, and when it is killed."""

    @property
    def is_over(self) -> bool:
        return self.state not in {"queued", "running"}


class Toy(Engine):
    """As many nodes as the target says; their jobs end with the session, as tasks of Ray do."""

    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self, target: str, section: EngineSection):
        super().__init__(target, section)
        self._plan = Plan.read()
        self._nodes = [f"node-{n}" for n in range(1, 1 + int(target or 1))]
        self._root = Path(tempfile.mkdtemp(prefix="toy-engine-"))
        self._jobs: dict[str, _Job] = {}
        self._starts = 0
        self._sick: dict[str, float] = {}
        self._random = random.Random(self._plan.seed)

    def describe(self) -> Capacity:
        """The nodes."""
        count = len(self._nodes)
        return Capacity(slots=count, hosts=count, text=f"{count} simulated nodes", gpus=False)

    def submit(self, shards: Sequence[Shard]) -> list[str]:
        """Queue them, on nodes with folders of their own with what they read."""
        names = []
        for shard in shards:
            name = f"{self._root.name}-{len(self._jobs)}"
            place = shard.folder if self._plan.shared else self._root / name
            if place != shard.folder:
                shutil.copytree(shard.folder, place)
            self._jobs[name] = _Job(name=name, shard=shard, place=place)
            names.append(name)
        return names

    def poll(self, jobs: Collection[str]) -> Mapping[str, JobStatus]:
        """Let happen what is due, start what there is room for, and tell how all stand."""
        for job in self._jobs.values():
            if job.state == "running":
                self._watch(job)
        for job in self._jobs.values():
            if job.state == "queued":
                self._place(job)
        return {name: self._status(name) for name in jobs}

    def _status(self, name: str) -> JobStatus:
        job = self._jobs.get(name)
        if job is None:
            return JobStatus(state="lost", reason="its session ended")
        reason = {"queued": "all nodes are busy", "cancelled": "by the toy"}.get(job.state, "")
        return JobStatus(state=job.state, node=job.node, code=job.code, reason=reason)

    def _place(self, job: _Job) -> None:
        busy = {other.node for other in self._jobs.values() if other.state == "running"}
        free = [node for node in self._nodes if node not in busy]
        wanted = [node for node in free if node not in job.shard.avoid]
        only_others = job.shard.avoid >= {*self._nodes}
        if node := next(iter(wanted or (free if only_others else [])), ""):
            self._start(job, node)

    def _start(self, job: _Job, node: str) -> None:
        if self._plan.before and not self._starts:
            subprocess.run(self._plan.before, shell=True, cwd=job.shard.cwd, check=True)
        job.fault = next((f for f in self._plan.faults if f.start == self._starts), None)
        self._starts += 1
        job.state, job.node = "running", node
        self._note("started", job)
        self._run(job)

    def _run(self, job: _Job) -> None:
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {FOLDER: str(job.place), "TOY_NODE": job.node, "PYTHONPATH": os.pathsep.join(paths)}
        own |= {**self._plan.environ, **self._plan.unequal.get(job.node, {})}
        if not self.outlives_session:
            own["GPUBENCH_SHARD_PARENT"] = str(os.getpid())
        if job.fault is not None and job.fault.kind == "limited":
            own[DEADLINE] = str(time() + job.fault.after_s)
        job.child = Child(
            self._command(job),
            environ={**os.environ, **own},
            cwd=job.shard.cwd,
            output=job.place / OUTPUT,
        )

    def _command(self, job: _Job) -> list[str]:
        return job.shard.command(sys.executable)

    def _watch(self, job: _Job) -> None:
        """Let happen to a running job what its plan says."""
        assert job.child is not None
        if self._sick.pop(job.node, 0.0) > monotonic():
            self._kill(job)
            self._end(job, "lost")
        elif job.child.code is not None:
            self._kill(job)  # and what it has left
            state = _STATES[job.ending[0]] if job.ending else "ended"
            self._end(job, state, None if job.ending else self._code(job))
        elif job.ending is not None:
            if monotonic() > job.ending[1]:
                job.child.kill()
        elif job.fault is not None and self._is_due(job, job.fault):
            fault, job.fault = job.fault, None
            self._meet(job, fault)

    def _is_due(self, job: _Job, fault: Fault) -> bool:
        if job.met_s is None and _count(job.place, "test_started") >= fault.tests:
            job.met_s = monotonic()
        return job.met_s is not None and monotonic() >= job.met_s + fault.after_s

    def _meet(self, job: _Job, fault: Fault) -> None:
        assert job.child is not None
        match fault.kind:
            case "lost":
                self._kill(job)
                self._sick[job.node] = monotonic() + self._plan.sick_s
                self._end(job, "lost")
            case "requeued":
                self._kill(job)
                self._note("requeued", job)
                self._run(job)
            case "crashed":
                os.kill(self._python(job.child), signal.SIGKILL)
                self._note("crashed", job)
            case "full":
                limits = (fault.bytes, resource.RLIM_INFINITY)
                resource.prlimit(self._python(job.child), resource.RLIMIT_FSIZE, limits)
                self._note("full", job)
            case "cancelled" | "preempted" | "limited":
                with suppress(ProcessLookupError):
                    os.killpg(job.child.pid, signal.SIGTERM)
                job.ending = (fault.kind, monotonic() + _GRACE_S)

    def _python(self, child: Child) -> int:
        return child.pid

    def _code(self, job: _Job) -> int | None:
        return job.child.code if job.child else None

    def _kill(self, job: _Job) -> None:
        assert job.child is not None
        job.child.kill()
        job.child.wait()
        job.child.close()

    def _end(self, job: _Job, state: State, code: int | None = None) -> None:
        job.state, job.code = state, code
        self._note(job.ending[0] if job.ending else state, job)

    def _note(self, what: str, job: _Job) -> None:
        """Log what happens, with the tests running and left there, as far as the front may know."""
        known = job.shard.folder if job.state == "lost" else job.place
        running, finished, recorded = tests_in(known)
        line: dict[str, Any] = {"what": what, "shard": job.shard.name, "node": job.node}
        line |= {"code": job.code, "running": running, "avoid": sorted(job.shard.avoid)}
        line["left"] = [nodeid for nodeid in job.shard.ids if nodeid not in finished]
        line["is_recorded"] = running in recorded
        with Path(self._plan.log).open("a") as log:
            print(json.dumps(line), file=log)

    def fetch(self, job: str) -> None:
        """Copy what the node has written: reports first, and pieces that end anywhere."""
        own = self._jobs.get(job)
        if own is None or own.place == own.shard.folder or own.state == "lost":
            return
        files = [Path(top, name) for top, _, names in os.walk(own.place) for name in names]
        for file in sorted(files, key=lambda file: file.name != _REPORTS):
            target = own.shard.folder / file.relative_to(own.place)
            with suppress(FileNotFoundError):  # a temporary one
                self._copy(file, target, is_whole=own.is_over or file.suffix not in _GROWING)

    def _copy(self, file: Path, target: Path, *, is_whole: bool) -> None:
        data = file.read_bytes()
        size = target.stat().st_size if target.exists() else 0
        if not is_whole:
            data = data[: self._random.randint(size, max(size, len(data)))]
        if len(data) != size or file.suffix not in _GROWING:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    def cancel(self, jobs: Collection[str]) -> None:
        """End them by SIGTERM, then by SIGKILL."""
        own = [self._jobs[name] for name in jobs if name in self._jobs]
        for job in own:
            if job.state == "running" and job.child is not None:
                with suppress(ProcessLookupError):
                    os.killpg(job.child.pid, signal.SIGTERM)
        for job in own:
            if job.state == "running" and job.child is not None:
                job.child.wait(_GRACE_S)
                self._kill(job)
                job.code = self._code(job)
            if not job.is_over:
                job.state = "ended"

    def close(self) -> None:
        """End what still runs, and forget what nodes have."""
        self.cancel([*self._jobs])
        shutil.rmtree(self._root, ignore_errors=True)


class Batch(Toy):
    """Jobs that go on without the session, in shared folders, as those of SLURM do.

    A shell above each writes its exit code. What still waits when a session ends is lost.
    """

    outlives_session: ClassVar[bool] = True
    _SHELL: ClassVar[str] = (
        'trap : TERM; echo $$ >"$GPUBENCH_SHARD/toy-pid"; "$@"; echo $? >"$GPUBENCH_SHARD/toy-code"'
    )

    def submit(self, shards: Sequence[Shard]) -> list[str]:
        """Queue them under names by which a later session finds their folders."""
        jobs = {str(shard.folder): shard for shard in shards}
        self._jobs |= {n: _Job(name=n, shard=s, place=s.folder) for n, s in jobs.items()}
        return [*jobs]

    def _command(self, job: _Job) -> list[str]:
        return ["sh", "-c", self._SHELL, "toy", *super()._command(job)]

    def _status(self, name: str) -> JobStatus:
        if name in self._jobs:
            return super()._status(name)
        if Path(name, "toy-cancelled").exists():
            return JobStatus(state="cancelled")
        if (code := _number(Path(name, "toy-code"))) is not None:
            return JobStatus(state="ended", code=_of_shell(code))
        pid = _number(Path(name, "toy-pid"))
        if pid is not None and Path(f"/proc/{pid}/fd").exists():
            return JobStatus(state="running", node="node-1")
        return JobStatus(state="lost", reason="it has not begun" if pid is None else "killed")

    def _python(self, child: Child) -> int:
        return int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()[0])

    def _code(self, job: _Job) -> int | None:
        code = _number(job.place / "toy-code")
        return None if code is None else _of_shell(code)

    def cancel(self, jobs: Collection[str]) -> None:
        """End them, also those of an earlier session; a later one is told that they were."""
        for name in jobs:
            if self._status(name).state in {"queued", "running"}:
                Path(name, "toy-cancelled").touch()
        super().cancel(jobs)
        for name in {*jobs} - self._jobs.keys():
            if self._status(name).state == "running" and (pid := _number(Path(name, "toy-pid"))):
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)
                deadline = monotonic() + _GRACE_S
                while self._status(name).state == "running" and monotonic() < deadline:
                    sleep(0.05)
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

    def close(self) -> None:
        """Let running jobs go on."""
        shutil.rmtree(self._root, ignore_errors=True)


def _of_shell(code: int) -> int:
    """Exit code of a process from that of the shell above it, with the number of a signal."""
    return 128 - code if code > 128 else code


def _number(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _lines(path: Path) -> list[dict[str, Any]]:
    """Complete lines of reports or a journal."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _count(folder: Path, event: str) -> int:
    return sum(line["event"] == event for line in _lines(folder / _REPORTS))


def tests_in(folder: Path) -> tuple[str | None, set[str], set[str]]:
    """Ids of the test that has begun and not finished, of the finished, and of the recorded.

    One in a shard's `folder` that is not recorded has not finished. Benchmarks have their tests'
    ids here.
    """
    journals = [*folder.glob("results/*/*/metrics.jsonl")]
    recorded = {line["id"] for p in journals for line in _lines(p) if line["event"] == "benchmark"}
    running, finished = None, set[str]()
    for line in _lines(folder / _REPORTS):
        match line["event"]:
            case "test_started":
                running = line["nodeid"]
            case "test_finished" if line["nodeid"] in recorded:
                finished.add(line["nodeid"])
                running = None
    return running, finished, recorded
