"""Shards on an engine, begun again until every test is finished."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import pytest

from gpubench_plugin.config import rounds_file
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted, listed
from gpubench_plugin.core.records import Json
from gpubench_plugin.engines.base import Engine, JobStatus, Shard
from gpubench_plugin.environment import code
from gpubench_plugin.session.shards.files import ShardFiles, ShardTest
from gpubench_plugin.session.shards.shard import REQUEST, ROUNDS, Request
from gpubench_plugin.system import files, json_files
from gpubench_plugin.system.child_process import code_text

if TYPE_CHECKING:
    from gpubench_plugin.config.rounds_file import FixedRounds

_JOB: Final = "job.json"
_PATIENCE_S: Final = 300.0
"""With an engine that does not answer: a controller of SLURM that is restarted."""
_FORGOTTEN: Final = JobStatus(state="lost", reason="its engine does not know it any more")
_MISFORTUNES: Final = {"lost": "its node was lost", "cut": "its time was up"}


@dataclass(kw_only=True)
class _Job:
    id: str
    shard: Shard
    files: ShardFiles
    status: JobStatus = field(default_factory=lambda: JobStatus(state="queued"))
    done: set[str] = field(default_factory=set)

    @property
    def has_begun(self) -> bool:
        """Whether a test has."""
        return bool(self.done or self.files.running)


@dataclass(kw_only=True)
class Pool:
    """Runs tests in shards on an `engine`.

    Args:
        config: of this session.
        engine: where they run.
        shard: what all shards have in common, and the folder in which each gets its own.
        benchmarks: ids of the benchmarks among the tests, by node ids.
        rounds: to time, by ids of benchmarks.
        expected_s: durations of earlier runs, by node ids.
        on_event: gets the name of the node, and the events of benchmarks.
        tell: shows how the shards stand.
    """

    config: pytest.Config
    engine: Engine
    shard: Shard
    benchmarks: Mapping[str, str]
    rounds: Mapping[str, FixedRounds]
    expected_s: Mapping[str, float]
    on_event: Callable[[str, str, Json], None]
    tell: Callable[[str], None]
    on_end: Callable[[ShardFiles], None]
    _given_up: list[str] = field(default_factory=list)
    _jobs: list[_Job] = field(default_factory=list)
    _tries: Counter[str] = field(default_factory=Counter)
    _answered_s: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        self._code = code.digests(self.shard.rootdir)

    def adopt(self, ids: Collection[str]) -> set[str]:
        """Take over the shards that an earlier session of the run has left; their tests of `ids`.

        A job that was ended, or that its engine does not know, has what it wrote, and is begun
        again.
        """
        for folder in sorted(file.parent for file in self.shard.folder.glob(f"*/{REQUEST}")):
            request, job = Request.of(folder), folder / _JOB
            own = tuple(i for i in request.ids if i in ids)
            shard = replace(self.shard, folder=folder, ids=own, is_alone=request.is_alone)
            self._add(json_files.load(job)["job"] if job.exists() else "", shard)
            self._tries.subtract(own)  # the end of a session is not their misfortune
        return {i for job in self._jobs for i in job.shard.ids}

    def submit(self, shards: Sequence[Shard]) -> None:
        """Submit `shards`, which get their folders."""
        shards = [self._prepared(shard) for shard in shards]
        for shard, job in zip(shards, self.engine.submit(shards) if shards else (), strict=True):
            self._add(job, shard)
            json_files.write_json(shard.folder / _JOB, {"job": job})

    def _prepared(self, shard: Shard) -> Shard:
        number = 1 + max((int(f.name) for f in self.shard.folder.glob("[0-9]*")), default=0)
        shard = replace(shard, folder=self.shard.folder / str(number))
        with files.refusals("write"):
            shard.folder.mkdir(parents=True)
        expected_s = {i: self.expected_s[i] for i in shard.ids if i in self.expected_s}
        Request(
            arguments=shard.arguments,
            ids=shard.ids,
            is_alone=shard.is_alone,
            expected_s=expected_s,
            code=self._code,
        ).write(shard.folder)
        own = {self.benchmarks.get(i) for i in shard.ids}
        if rounds := {i: fixed for i, fixed in self.rounds.items() if i in own}:
            json_files.write_text(shard.folder / ROUNDS, rounds_file.to_text(rounds))
        return shard

    def _add(self, job_id: str, shard: Shard) -> None:
        def on_event(benchmark: str, event: Json) -> None:
            self.on_event(job.status.node, benchmark, event)

        job = _Job(id=job_id, shard=shard, files=ShardFiles(self.config, shard.folder, on_event))
        self._jobs.append(job)

    def run(self) -> Iterator[ShardTest]:
        """Tests as they finish, on whatever shard, until all have.

        Raises:
            UsageProblem: the engine does not answer.
            pytest.UsageError: a shard refused what it was asked.
            pytest.Session.Interrupted: a shard cannot be run, was cancelled, or asks to stop.
            pytest.exit.Exception: a test asks for it.
        """
        while self._jobs:
            self._poll()
            for job in [*self._jobs]:
                self.engine.fetch(job.id)
                is_over = job.status.state not in {"queued", "running"}
                for test in job.files.read(self.benchmarks, is_last=is_over):
                    job.done.add(test.nodeid)
                    yield replace(test, node=job.status.node)
                if self._is_hopeless(job):
                    self.engine.cancel([job.id])
                    job.status = replace(job.status, state="lost")
                    is_over = True
                if is_over:
                    self._jobs.remove(job)
                    yield from self._ended(job)
            if self._jobs:
                self.tell(self._standing())
                sleep(self.engine.poll_interval_s)
        if self._given_up:
            raise pytest.Session.Interrupted("\n".join(filter(None, self._given_up)))

    def cancel(self) -> None:
        """End all shards; what they have left is begun again where the run is resumed."""
        self.engine.cancel([job.id for job in self._jobs])
        for job in self._jobs:
            json_files.remove(job.shard.folder / _JOB)

    def _poll(self) -> None:
        try:
            statuses = self.engine.poll([job.id for job in self._jobs])
        except UsageProblem as error:
            if monotonic() - self._answered_s > _PATIENCE_S:
                raise
            self.tell(str(error))
            return
        self._answered_s = monotonic()
        for job in self._jobs:
            status = statuses.get(job.id, _FORGOTTEN)
            job.status = replace(status, node=status.node or job.status.node)

    def _standing(self) -> str:
        queued = [job.status.reason for job in self._jobs if job.status.state == "queued"]
        text = f"{counted(len(self._jobs) - len(queued), 'shard')} running"
        text += f", {len(queued)} queued" * bool(queued)
        reasons = listed([*dict.fromkeys(filter(None, queued))])
        return f"{text}: {reasons}" if reasons else text

    def _ended(self, job: _Job) -> Iterator[ShardTest]:
        """What becomes of the tests that a shard has not finished."""
        status, end, running = job.status, job.files.end, job.files.running
        left = [i for i in job.shard.ids if i not in job.done]
        if end is not None and "stop" in end:
            self._forget(job)
            if "exit" in end:
                pytest.exit(end["stop"], end["exit"])
            raise pytest.Session.Interrupted(end["stop"])
        if left and status.code == pytest.ExitCode.USAGE_ERROR and not job.has_begun:
            output = job.files.last_output()
            self._forget(job)
            raise pytest.UsageError(output.rpartition("ERROR: ")[2])
        if status.state == "cancelled" and left:
            self._given_up.append(f"shard {job.shard.name} was cancelled{_because(status)}")
            left = []
        elif left and self._is_unlucky(job):
            victim = running.nodeid if running else left[0]
            self._tries[victim] += 1
            if self._tries[victim] > self.engine.section.retries:
                times = counted(self._tries[victim], "time")
                reason = f"{_misfortune(job)} {times}{_because(status)}"
                if running is None:  # the others go on
                    self._given_up.append(f"shard {job.shard.name}: {reason}")
                    if not job.has_begun and len(self._given_up) == 1:  # one tells it for all
                        self._given_up.append(job.files.last_output())
                    left = []
                else:
                    left = [i for i in left if i != victim]
                    yield job.files.crashed(running, self.benchmarks, reason)
        elif running is not None:
            left = [i for i in left if i != running.nodeid]
            reason = f"the process of shard {job.shard.name} {_end_of(status)}"
            yield job.files.crashed(running, self.benchmarks, reason)
        self._forget(job)
        if left:
            is_sick = status.state == "lost" or (status.state == "ended" and not job.has_begun)
            avoid = job.shard.avoid | ({status.node} - {""} if is_sick else set())
            self.submit([replace(job.shard, ids=tuple(left), avoid=avoid)])

    def _forget(self, job: _Job) -> None:
        """Leave nothing of a shard that ended by itself, and of others only what they wrote.

        With its request, a session that resumes the run would take it over.
        """
        self.on_end(job.files)
        json_files.remove(job.shard.folder / REQUEST)
        if job.files.end is not None:
            shutil.rmtree(job.shard.folder, ignore_errors=True)

    def _is_unlucky(self, job: _Job) -> bool:
        """Whether the shard ended by no fault of its tests: its node, its time, or a signal."""
        # On a full disk the end is not written, and torchrun has a code of its own.
        codes = {job.status.code, (job.files.end or {}).get("exit_code")}
        is_interrupted = pytest.ExitCode.INTERRUPTED in codes
        return job.status.state in _MISFORTUNES or not job.has_begun or is_interrupted

    def _is_hopeless(self, job: _Job) -> bool:
        """Whether the engine has requeued the shard, and its test begins too often."""
        begun = job.files.running.nodeid if job.files.running else ""
        starts = job.files.starts[begun]
        if job.status.state != "queued" or starts <= self.engine.section.retries:
            return False
        self._tries[begun] = starts - 1
        return True


def _misfortune(job: _Job) -> str:
    if job.has_begun or job.status.state in _MISFORTUNES:
        return _MISFORTUNES.get(job.status.state, "it was interrupted")
    place = f" on {job.status.node}" if job.status.node else ""
    return f"{_end_of(job.status)}{place} before its first test"


def _end_of(status: JobStatus) -> str:
    return "ended" if status.code is None else code_text(status.code)


def _because(status: JobStatus) -> str:
    return f": {status.reason}" if status.reason else ""
