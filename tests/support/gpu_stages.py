"""Stages of ``gpubench gpu-check`` whose end is known, and runs of real ones without a device."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench_plugin.cli.gpu_check.record import Criterion, Row
from gpubench_plugin.cli.gpu_check.stage import PROGRESS, Session, Stage, StageRun, findings
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.core.records import Measurement, Metric, RunRecord, Samples
from gpubench_plugin.environment import stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PIDS = "pids.txt"
"""File in the working directory to which stages write the ids of their processes."""


def stage(name: str, limit_s: float = 60.0, **fields: Any) -> Stage:
    """The stage of this module's function of that name."""
    return Stage(
        name=name,
        parts=fields.pop("parts", ("proof",)),
        limit_s=limit_s,
        least_s=fields.pop("least_s", 0.0),
        program=f"{__name__}:{name}",
        proves=(f"what {name} shows",),
        **fields,
    )


FACTS = stage("facts", required=True)


def facts(run: StageRun) -> None:
    """A device on paper."""
    run.fact(device={"name": "paper"}, versions={"torch": "2.13.0"}, more=[1])
    run.check("fits", True, "equal", 1)


def no_device(run: StageRun) -> None:
    """None."""
    run.fact(versions={"torch": "2.13.0"})
    raise Unsupported("there is no GPU | here")


def passes(run: StageRun) -> None:
    """One criterion, a row, and something left open."""
    run.check("error", 0.4, "at_most", 0.5, "%")
    run.row(Row(id="test_a.py::test_a", precision="bf16", outcome="measured", step_time_s=1e-3))
    run.unproven("the goal is one of another device")


def fails(run: StageRun) -> None:
    """Of two criteria one is not met."""
    run.check("error", 0.4, "at_most", 0.5, "%")
    run.check("ratio", 1.1, "at_least", 1.3)


def shows_nothing(run: StageRun) -> None:
    """No criterion."""


def raises(run: StageRun) -> None:
    """An error after a criterion."""
    run.check("error", 0.4, "at_most", 0.5, "%")
    raise RuntimeError("the stage is broken")


def is_killed(run: StageRun) -> None:
    """A signal, as of the out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(run: StageRun) -> None:
    """Sleeps, beside a child in a session of its own, and one that is an orphan."""
    run.check("error", 0.4, "at_most", 0.5, "%")
    sleeper = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}])"
    with Path(PIDS).open("a", encoding="ascii") as file:
        print(os.getpid(), file=file, flush=True)
        subprocess.Popen([sys.executable, "-c", sleeper], stdout=file, start_new_session=True)
        subprocess.run(
            [sys.executable, "-c", orphan], stdout=file, start_new_session=True, check=True
        )
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def writes_junk(run: StageRun) -> None:
    """A line that is no text."""
    passes(run)
    (run.folder / PROGRESS).write_bytes(b"\xff\xfe\n")


def writes_a_number(run: StageRun) -> None:
    """A line that is no object."""
    passes(run)
    (run.folder / PROGRESS).write_text("17\n")


def removes_its_folder(run: StageRun) -> None:
    """With all that it found."""
    passes(run)
    shutil.rmtree(run.folder)
    run.folder = run.folder.parent / "elsewhere"
    run.folder.mkdir()


def is_killed_while_it_writes(run: StageRun) -> None:
    """A criterion, and the beginning of another."""
    run.check("error", 0.4, "at_most", 0.5, "%")
    with (run.folder / PROGRESS).open("a") as file:
        file.write('{"criterion": {"na')
    os.kill(os.getpid(), signal.SIGKILL)


def waits(run: StageRun) -> None:
    """A command that takes too long, whose exit code is a criterion."""
    code = run.execute("sleep", ["sleep", "600"], cwd=run.folder)
    run.check("exit code", code, "equal", 0)


def kills_its_supervisor(run: StageRun) -> None:
    """Somebody else does, as an administrator."""
    Path(PIDS).write_text(str(os.getpid()), encoding="ascii")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def unsupported(run: StageRun) -> None:
    """The machine lacks something."""
    raise Unsupported("no Triton")


def session(*benchmarks: Measurement, code: int | None = 0, folder: Path | None = None) -> Session:
    """A session that ended with these benchmarks."""
    record = RunRecord(
        run_id="r",
        experiment="default",
        status="complete",
        started="",
        finished="",
        command=(),
        environment={"device": {"model": "NVIDIA H200"}},
        benchmarks=benchmarks,
    )
    return Session(code=code, run=record, folder=folder)


EMPTY = session()


@dataclass(kw_only=True)
class CannedRun(StageRun):
    """A stage's run whose sessions of pytest are made up: `sessions` by name, else `session`."""

    sessions: Mapping[str, Session] = field(default_factory=dict)
    session: Session = EMPTY
    on_execute: Callable[[Sequence[str]], int | None] = lambda _: 0

    def pytest(self, name: str, *arguments: str, **options: Any) -> Session:
        """The session of that name."""
        return self.sessions.get(name, self.session)

    def execute(self, name: str, command: Sequence[str], **options: Any) -> int | None:
        """What the test says of the command."""
        return self.on_execute(command)


def measurement(node_id: str, *, outcome: Any = "measured", **metrics: float) -> Measurement:
    """A benchmark of some blocks of one call, 10 ms each unless the metrics say otherwise."""
    name = node_id.rpartition("::")[2]
    seconds = metrics.get("step_time_s", 0.01)
    samples = Samples(
        timer="cuda_events",
        durations_s=(seconds,) * 10,
        calls_per_duration=1,
        durations_per_round=1,
        block_s=(seconds,) * 10,
        block_calls=(1,) * 10,
        first_step_s=seconds,
        warmup_s=(),
        warmup_calls=0,
    )
    is_measured = outcome == "measured"
    case = name.partition("[")[2].removesuffix("-ws1]")
    precisions = ("bf16-true", "fp16-true", "amp", "bf16", "fp32")
    return Measurement(
        id=node_id,
        name=name,
        outcome=outcome,
        params={"precision": next((p for p in precisions if case.endswith(p)), "")},
        world_size=1,
        samples=samples if is_measured else None,
        metrics={
            n: Metric(name=n, value=v, unit="")
            for n, v in {"step_time_s": seconds, **metrics}.items()
            if is_measured
        },
    )


def criteria(run: StageRun) -> dict[str, Criterion]:
    """Criteria of a run by name."""
    found = [f["criterion"] for f in findings(run.folder) if "criterion" in f]
    return {c["name"]: stored.restore(Criterion, c, "a criterion") for c in found}


def failed(run: StageRun) -> list[str]:
    """Names of the criteria that were not met."""
    return [name for name, criterion in criteria(run).items() if not criterion.passed]
