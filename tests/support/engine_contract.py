"""What the front of a session relies on of any engine.

A test class of an engine derives from :class:`EngineContract` and has a fixture `engine`.
"""

from __future__ import annotations

import signal
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from gpubench_plugin.engines.base import OUTPUT, Engine, JobStatus, Shard
from tests.support.processes import is_running, wait_until

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

BEGINNING: Final = """
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(os.environ["GPUBENCH_SHARD"])
def write(name, text):
    with open(folder / name, "a") as file:
        file.write(text)
write("pids", f"{os.getpid()}\\n")
print("has begun", flush=True)
"""
"""Of what stands for a session: it writes where a shard's session does."""

STATES: Final = {"queued", "running", "ended", "lost", "cut", "cancelled"}


class EngineContract:
    """Tests of an engine on this machine; each job has to end `within_s`."""

    within_s: ClassVar[float] = 30.0
    unknown: ClassVar[str] = "none-such"
    """Name of a job that the engine has never had."""

    @pytest.fixture
    def engine(self) -> Engine:
        """The engine, closed at the end; overridden."""
        raise NotImplementedError

    @pytest.fixture
    def made(self, tmp_path: Path) -> ShardMaker:
        """Makes shards whose sessions run some lines of Python."""
        return ShardMaker(tmp_path)

    def test_it_describes_what_it_offers(self, engine: Engine) -> None:
        """At least a slot, on a host, in words for the header."""
        capacity = engine.describe()
        assert 1 <= capacity.hosts <= capacity.slots
        assert capacity.text
        assert "\n" not in capacity.text

    def test_job_ends_with_the_code_of_its_session(self, engine: Engine, made: ShardMaker) -> None:
        """By its number, and what the session has written is here, its output appended."""
        shard = made("write('written', 'all of it'); sys.exit(3)", output="before\n")
        (job,) = engine.submit([shard])
        status = self.ended(engine, [job])[job]
        assert (status.state, status.code) == ("ended", 3)
        assert (shard.folder / "written").read_text() == "all of it"
        assert (shard.folder / OUTPUT).read_text().splitlines()[0] == "before"
        assert "has begun" in (shard.folder / OUTPUT).read_text().splitlines()

    def test_session_reads_what_is_in_its_folder(self, engine: Engine, made: ShardMaker) -> None:
        """The request of the front, wherever the node has the folder; its own working directory."""
        shard = made("write('got', (folder / 'request.json').read_text() + os.getcwd())")
        (shard.folder / "request.json").write_text("asked in ")
        (job,) = engine.submit([shard])
        assert self.ended(engine, [job])[job].code == 0
        assert (shard.folder / "got").read_text() == f"asked in {shard.cwd}"

    def test_signal_is_told(self, engine: Engine, made: ShardMaker) -> None:
        """As a negative number, which the out-of-memory killer is known by."""
        (job,) = engine.submit([made("os.kill(os.getpid(), signal.SIGKILL)")])
        assert self.ended(engine, [job])[job].code == -signal.SIGKILL

    def test_what_it_writes_comes_while_it_runs(self, engine: Engine, made: ShardMaker) -> None:
        """In the order in which it was written, and nothing twice."""
        lines = [f"{n}\n" for n in range(30)]
        shard = made("for n in range(30): write('lines', f'{n}\\n'); time.sleep(0.1)")
        (job,) = engine.submit([shard])
        seen: list[str] = []

        def has_ended() -> bool:
            is_over = self.state(engine, job).state not in {"queued", "running"}
            engine.fetch(job)
            path = shard.folder / "lines"
            seen.append(path.read_text() if path.exists() else "")
            return is_over

        wait_until(has_ended, self.within_s)
        assert all("".join(lines).startswith(text) for text in seen)
        assert seen[-1] == "".join(lines)
        assert {*seen} - {"", seen[-1]}

    def test_cancelled_job_leaves_no_process(self, engine: Engine, made: ShardMaker) -> None:
        """Neither its own nor its children, whatever they do about SIGTERM."""
        shard = made(
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
            "child = subprocess.Popen(['sleep', '300']); write('pids', f'{child.pid}\\n')",
            "write('ready', ''); time.sleep(300)",
        )
        (job,) = engine.submit([shard])
        self.until_written(engine, job, shard.folder / "ready")
        engine.cancel([job])
        pids = (shard.folder / "pids").read_text().split()
        assert len(pids) == 2
        wait_until(lambda: not any(map(is_running, pids)), self.within_s)
        assert self.state(engine, job).state not in {"queued", "running"}

    def test_job_that_waits_is_cancelled(self, engine: Engine, made: ShardMaker) -> None:
        """It never begins; nor does it matter to cancel what has ended, or is unknown."""
        shards = [made("time.sleep(300)") for _ in range(engine.describe().slots)]
        last = made("write('begun', '')")
        *jobs, waiting = engine.submit([*shards, last])
        self.until_written(engine, jobs[0], shards[0].folder / "pids")
        assert self.state(engine, waiting).state == "queued"
        engine.cancel([waiting, self.unknown])
        engine.cancel(jobs)
        engine.cancel(jobs)
        self.ended(engine, [*jobs, waiting])
        assert not (last.folder / "begun").exists()

    def test_no_more_run_than_there_are_slots(self, engine: Engine, made: ShardMaker) -> None:
        """All end, each with its own code; in between the others wait."""
        slots = engine.describe().slots
        shards = [made(f"time.sleep(0.3); sys.exit({n})") for n in range(slots + 2)]
        jobs = engine.submit(shards)
        assert len({*jobs}) == len(jobs)
        most = 0

        def have_ended() -> bool:
            nonlocal most
            states = [status.state for status in engine.poll(jobs).values()]
            assert {*states} <= STATES
            most = max(most, states.count("running"))
            return not {"queued", "running"} & {*states}

        wait_until(have_ended, self.within_s * 2)
        assert 0 < most <= slots
        assert [self.state(engine, job).code for job in jobs] == [*range(slots + 2)]

    def test_session_leaves_no_process(self, engine: Engine, made: ShardMaker) -> None:
        """What it has started and not ended would disturb the next one."""
        shard = made("child = subprocess.Popen(['sleep', '300']); write('pids', f'{child.pid}\\n')")
        (job,) = engine.submit([shard])
        self.ended(engine, [job])
        pids = (shard.folder / "pids").read_text().split()
        assert len(pids) == 2
        wait_until(lambda: not any(map(is_running, pids)), 10)

    def test_unknown_job_is_lost(self, engine: Engine) -> None:
        """So is one of an earlier session that has not outlived it."""
        assert self.state(engine, self.unknown).state == "lost"
        engine.fetch(self.unknown)

    def state(self, engine: Engine, job: str) -> JobStatus:
        """How a job stands."""
        return engine.poll([job]).get(job, JobStatus(state="lost"))

    def ended(self, engine: Engine, jobs: Collection[str]) -> Mapping[str, JobStatus]:
        """How the jobs have ended, and what they have written fetched."""
        deadline = monotonic() + self.within_s
        while {"queued", "running"} & {s.state for s in engine.poll(jobs).values()}:
            assert monotonic() < deadline, engine.poll(jobs)
            sleep(engine.poll_interval_s)
        for job in jobs:
            engine.fetch(job)
        return engine.poll(jobs)

    def until_written(self, engine: Engine, job: str, file: Path) -> None:
        """Wait for a file of a job that runs."""

        def is_written() -> bool:
            assert self.state(engine, job).state in {"queued", "running"}
            engine.fetch(job)
            return file.exists()

        wait_until(is_written, self.within_s)


class ShardMaker:
    """Makes shards in folders below a `root`."""

    def __init__(self, root: Path):
        self._root = root
        self._count = 0

    def __call__(self, *lines: str, output: str = "") -> Shard:
        """A shard whose session runs the `lines`; with `output` of an earlier one."""
        self._count += 1
        folder = self._root / "shards" / str(self._count)
        folder.mkdir(parents=True)
        if output:
            (folder / OUTPUT).write_text(output)
        code = BEGINNING + "\n".join(lines)
        return Shard(folder=folder, options=("-c", code), rootdir=self._root, cwd=self._root)
