"""Shards on an engine, begun again until every test is finished."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import pytest

from gpubench_plugin.config import rounds_file
from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.core.format import counted, listed
from gpubench_plugin.core.records import Json
from gpubench_plugin.engines.base import Engine, JobStatus, Shard
from gpubench_plugin.session.shards.files import ShardFiles, ShardTest
from gpubench_plugin.session.shards.shard import ROUNDS, Request
from gpubench_plugin.system import json_files
from gpubench_plugin.system.child_process import code_text

if TYPE_CHECKING:
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.results.run_directory import RunDirectory

_JOB: Final = "job.json"
_PATIENCE_S: Final = 300.0
"""With an engine that does not answer: a controller of SLURM that is restarted."""


class ShardFailed(GpubenchError):
    """A shard ended before its first test; `code` is its exit code, None if unknown."""

    def __init__(self, message: str, code: int | None):
        super().__init__(message)
        self.code = code


class ShardStopped(GpubenchError):
    """A test or a hook in a shard ended the session; with the exit code that a test asked for."""

    def __init__(self, message: str, *, is_exit: bool, code: int | None):
        super().__init__(message)
        self.is_exit = is_exit
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Part:
    """Tests of one shard, by node ids."""

    ids: Sequence[str]
    is_alone: bool = False
    avoid: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class _Job:
    id: str
    shard: Shard
    part: Part
    files: ShardFiles
    status: JobStatus = field(default_factory=lambda: JobStatus(state="queued"))
    done: set[str] = field(default_factory=set)


class Pool:
    """Runs tests in shards on an `engine`, in folders below `folder`.

    Args:
        shard: what all shards have in common.
        request: what all of them are asked; without ids.
        run: gets the traces and other files that no record has; None for tests that no run records.
        benchmarks: ids of the benchmarks among the tests, by node ids.
        rounds: to time, by ids of benchmarks.
        on_event: gets the name of the node, and the events of benchmarks.
        tell: shows how the shards stand.
    """

    def __init__(
        self,
        config: pytest.Config,
        engine: Engine,
        folder: Path,
        *,
        shard: Shard,
        request: Request,
        run: RunDirectory | None,
        benchmarks: Mapping[str, str],
        rounds: Mapping[str, FixedRounds],
        on_event: Callable[[str, str, Json], None],
        tell: Callable[[str], None],
    ):
        self.cancelled: list[str] = []
        """Why shards were cancelled, whose tests are not run."""
        self._config, self._engine, self._folder = config, engine, folder
        self._shard, self._request, self._run = shard, request, run
        self._benchmarks, self._rounds = benchmarks, rounds
        self._on_event, self._tell = on_event, tell
        self._kind = type(engine).__name__
        self._jobs: list[_Job] = []
        self._tries: Counter[str] = Counter()
        self._answered_s = monotonic()

    def adopt(self, ids: Collection[str]) -> set[str]:
        """Take over the shards that an earlier session of the run has left; their tests of `ids`.

        A job that its engine does not know any more has what it wrote, and is begun again.
        """
        for file in sorted(self._folder.glob(f"*/{_JOB}")):
            job, folder = json_files.load(file), file.parent
            request = Request.of(folder)
            part = Part(ids=[i for i in request.ids if i in ids], is_alone=job["is_alone"])
            known = job["job"] if job["engine"] == self._kind else ""
            shard = replace(self._shard, name=folder.name, folder=folder, is_alone=part.is_alone)
            self._add(known, shard, part)
        return {i for job in self._jobs for i in job.part.ids}

    def submit(self, parts: Iterable[Part]) -> None:
        """Submit a shard for each part."""
        shards = {self._made(part): part for part in parts}
        jobs = self._engine.submit([*shards]) if shards else []
        for job, (shard, part) in zip(jobs, shards.items(), strict=True):
            facts = {"engine": self._kind, "job": job, "is_alone": part.is_alone}
            json_files.write_json(shard.folder / _JOB, facts)
            self._add(job, shard, part)

    def _made(self, part: Part) -> Shard:
        number = 1 + max((int(f.name) for f in self._folder.glob("[0-9]*")), default=0)
        folder = self._folder / str(number)
        folder.mkdir(parents=True)
        expected_s = {i: s for i, s in self._request.expected_s.items() if i in {*part.ids}}
        replace(self._request, ids=part.ids, expected_s=expected_s).write(folder)
        benchmarks = {self._benchmarks.get(i) for i in part.ids}
        if fixed := {b: rounds for b, rounds in self._rounds.items() if b in benchmarks}:
            json_files.write_text(folder / ROUNDS, rounds_file.to_text(fixed))
        return replace(
            self._shard,
            name=str(number),
            folder=folder,
            is_alone=part.is_alone,
            avoid=part.avoid,
        )

    def _add(self, job_id: str, shard: Shard, part: Part) -> None:
        job = _Job(id=job_id, shard=shard, part=part, files=ShardFiles(self._config, shard.folder))
        own = {self._benchmarks.get(i) for i in part.ids}

        def on_event(benchmark: str, event: Json) -> None:
            if benchmark in own:
                self._on_event(job.status.node, benchmark, event)

        job.files.on_event = on_event
        self._jobs.append(job)

    def run(self) -> Iterator[ShardTest]:
        """Tests as they finish, on whatever shard, until all have.

        Raises:
            ShardFailed: a shard cannot be run.
            ShardStopped: a test or a hook ended the session.
            UsageProblem: the engine does not answer.
        """
        while self._jobs:
            self._poll()
            for job in [*self._jobs]:
                if job.id:
                    self._engine.fetch(job.id)
                is_over = job.status.state not in {"queued", "running"}
                for test in job.files.read(self._benchmarks, is_last=is_over):
                    job.done.add(test.nodeid)
                    yield self._placed(test, job)
                if is_over:
                    self._jobs.remove(job)
                    yield from self._ended(job)
            if self._jobs:
                self._tell(self._standing())
                sleep(self._engine.poll_interval_s)

    def cancel(self) -> None:
        """End all shards."""
        self._engine.cancel([job.id for job in self._jobs if job.id])

    def _poll(self) -> None:
        try:
            statuses = self._engine.poll([job.id for job in self._jobs if job.id])
        except UsageProblem as error:
            if monotonic() - self._answered_s > _PATIENCE_S:
                raise
            self._tell(str(error))
            return
        self._answered_s = monotonic()
        for job in self._jobs:
            status = statuses[job.id] if job.id else JobStatus(state="lost")
            job.status = replace(status, node=status.node or job.status.node)

    def _standing(self) -> str:
        running = [job for job in self._jobs if job.status.state == "running"]
        queued = [job.status.reason for job in self._jobs if job.status.state == "queued"]
        texts = [f"{counted(len(running), 'shard')} running"] * bool(running)
        reasons = listed([*dict.fromkeys(filter(None, queued))])
        texts += [f"{len(queued)} queued{f' ({reasons})' if reasons else ''}"] * bool(queued)
        return ", ".join(texts)

    def _placed(self, test: ShardTest, job: _Job) -> ShardTest:
        """The `test` with what its record says about where it ran."""
        if test.record is not None:
            test.record = replace(test.record, shard=job.shard.name)
        return test

    def _ended(self, job: _Job) -> Iterator[ShardTest]:
        """What becomes of the tests that a shard has not finished."""
        status, end, running = job.status, job.files.end, job.files.running
        left = [i for i in job.part.ids if i not in job.done]
        if end is not None and "stop" in end:
            raise ShardStopped(end["stop"], is_exit="exit" in end, code=end.get("exit"))
        avoid = job.part.avoid | ({status.node} if status.state == "lost" else set())
        if status.state == "cancelled" and left:
            self.cancelled.append(f"shard {job.shard.name} was cancelled{_because(status.reason)}")
            left = []
        elif left and self._is_unlucky(job):
            victim = running.nodeid if running is not None else left[0]
            self._tries[victim] += 1
            if self._tries[victim] > self._engine.section.retries:
                times = counted(self._tries[victim], "time")
                reason = f"{_NOUNS[status.state]} {times}{_because(status.reason)}"
                if running is None:
                    raise ShardFailed(f"shard {job.shard.name}: {reason}", None)
                left.remove(victim)
                yield self._failed(job, running, reason)
        elif running is not None:
            left = [i for i in left if i != running.nodeid]
            code = "ended" if status.code is None else code_text(status.code)
            yield self._failed(job, running, f"the process of shard {job.shard.name} {code}")
        elif left and not job.done:
            raise ShardFailed(self._complaint(job), status.code)
        self._put_away(job)
        if left:
            self.submit([replace(job.part, ids=left, avoid=avoid)])

    def _is_unlucky(self, job: _Job) -> bool:
        """Whether the shard ended by no fault of its tests: its node, its time, or a signal."""
        end, has_begun = job.files.end, bool(job.done or job.files.running)
        if job.status.state in {"lost", "cut"}:
            return True
        is_interrupted = end is not None and end["exit_code"] == pytest.ExitCode.INTERRUPTED
        return has_begun and end is not None and (is_interrupted or "is_cut" in end)

    def _failed(self, job: _Job, test: ShardTest, reason: str) -> ShardTest:
        test.failure, test.output = reason, job.files.last_output()
        benchmark = self._benchmarks.get(test.nodeid)
        record = job.files.unfinished_record(benchmark) if benchmark else None
        if record is not None:
            test.record = replace(record, outcome="crashed", reason=reason)
        return self._placed(test, job)

    def _complaint(self, job: _Job) -> str:
        output, status = job.files.last_output(), job.status
        _, found, usage = output.rpartition("ERROR: ")
        if found:
            return usage
        code = "ended" if status.code is None else code_text(status.code)
        place = f" on {status.node}" if status.node else ""
        name = f"shard {job.shard.name}{place} {code} before its first test"
        return "\n".join(filter(None, [f"{name}{_because(status.reason)}", output]))

    def _put_away(self, job: _Job) -> None:
        """Keep the files of the shard's run, and its folder if it did not end by itself."""
        if self._run is not None:
            job.files.move_into(self._run)
        json_files.remove(job.shard.folder / _JOB)
        if job.files.end is not None:
            shutil.rmtree(job.shard.folder, ignore_errors=True)


_NOUNS: Final = {"lost": "its node was lost", "cut": "its time was up", "ended": "interrupted"}


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
