"""Runs the stages within the budget, and rewrites the record after each.

It never imports torch, and so takes nothing of the GPU.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal, Self

from gpubench_plugin.cli.gpu_check import supervisor
from gpubench_plugin.cli.gpu_check.markdown import page
from gpubench_plugin.cli.gpu_check.record import (
    NOT_PROVEN,
    Criterion,
    GpuCheck,
    Part,
    Row,
    StageOutcome,
    StageResult,
)
from gpubench_plugin.cli.gpu_check.stage import Stage, findings
from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.core.records import Json
from gpubench_plugin.environment import json_files, stored
from gpubench_plugin.environment.child_process import last_lines
from gpubench_plugin.environment.locks import KernelLock

RECORD: Final = "gpu-check.json"
PAGE: Final = "gpu-check.md"
STAGES: Final = "gpu-check-stages"
"""Folder of the stages, which each run begins anew; the name is this command's own."""

_MODULES: Final = "gpubench_plugin.cli.gpu_check"
_SUPERVISOR_S: Final = 15.0
"""From the end of a stage's time to that of its supervisor, which kills what is left; longer than
:data:`supervisor._KILL_S`."""
_KILLED: Final = "it was begun, and gpu-check was killed"

Progress = Callable[[StageResult | str], object]


@dataclass(kw_only=True)
class Driver:
    """Runs `stages` in their order, those of the `part`; `progress` is told of each.

    `out` gets the record, and a folder for each stage, which is kept if it did not pass.
    """

    stages: Sequence[Stage]
    out: Path
    part: Part | Literal["all"] = "all"
    budget_s: float
    progress: Progress = lambda _: None
    now: Callable[[], float] = monotonic
    _record: GpuCheck = field(init=False)
    _statements: list[str] = field(default_factory=list, init=False)

    def run(self) -> GpuCheck:
        """Run the stages; return the record, as it stands in the file.

        Raises:
            UsageProblem: another gpu-check writes to `out`.
            ResultsError: the record could not be written.
            KeyboardInterrupt: the stage that was interrupted is on record as ``cut``.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with KernelLock(self.out, os.O_RDONLY | os.O_DIRECTORY) as lock:
            try:
                lock.acquire()
            except BlockingIOError as error:
                raise UsageProblem(
                    f"--out={self.out}: another gpu-check writes to it; allowed: another folder"
                ) from error
            return self._run()

    def _run(self) -> GpuCheck:
        start = self.now()
        stages = [s for s in self.stages if self.part == "all" or self.part in s.parts]
        self._record = GpuCheck(part=self.part, budget_s=self.budget_s, started=_utc_now())
        self._record = replace(
            self._record, stages=tuple(_not_run(stage, "not reached") for stage in stages)
        )
        folder = self.out / STAGES
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        obstacle: StageResult | None = None
        for number, stage in enumerate(stages):
            remaining_s = self.budget_s - (self.now() - start)
            if obstacle is not None:
                result = _after(obstacle, stage)
            elif remaining_s < stage.least_s:
                result = replace(_not_run(stage, _too_late(remaining_s, stage)), outcome="cut")
            else:
                self._save(number, _not_run(stage, _KILLED))
                self.progress(stage.name)
                try:
                    result = self._result(stage, folder / stage.name, remaining_s)
                except KeyboardInterrupt:
                    self._save(number, replace(_not_run(stage, "interrupted"), outcome="cut"))
                    raise
            self._save(number, result)
            self.progress(result)
            if stage.required and self._record.device is None:
                obstacle = result
        self._record = replace(self._record, finished=_utc_now())
        self._write()
        with suppress(OSError):
            folder.rmdir()  # nothing was kept
        return self._record

    def _result(self, stage: Stage, folder: Path, remaining_s: float) -> StageResult:
        """Run the stage's process for as long as it may take, and read what it found."""
        folder.mkdir()
        limit_s, start = min(stage.limit_s, remaining_s), self.now()
        output = folder / "output.txt"
        code = _supervised(stage, folder, limit_s, output)
        seconds = max(0.0, self.now() - start)
        stage_findings = _StageFindings.of(folder)
        if stage.required:
            self._record = replace(
                self._record,
                device=stage_findings.facts.pop("device", None),
                versions=stage_findings.facts.pop("versions", {}),
            )
        self._record = replace(self._record, rows=(*self._record.rows, *stage_findings.rows))
        self._statements += stage_findings.unproven
        lines = _end_of(output)
        outcome, reason = stage_findings.judged()
        if code == supervisor.TIMED_OUT or stage_findings.out_of_time:
            is_cut = limit_s < stage.limit_s
            outcome = "cut" if is_cut else "hang"
            left, limit = f"{limit_s:.0f} s of the budget were left", f"{limit_s:.0f} s"
            reason = left if is_cut else f"it did not end within its limit of {limit}"
        elif code and not stage_findings.broken:
            outcome = "crashed"
            reason = f"its process {_exit_text(code)}{f': {lines[-1]}' if lines else ''}"
        is_kept = outcome not in {"passed", "unsupported"}
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
        return StageResult(
            name=stage.name,
            outcome=outcome,
            reason=reason,
            limit_s=limit_s,
            seconds=seconds,
            criteria=tuple(stage_findings.criteria),
            facts=stage_findings.facts,
            last_lines=lines if is_kept else (),
        )

    def _save(self, number: int, result: StageResult) -> None:
        results = list(self._record.stages)
        results[number] = result
        unproven = dict.fromkeys([*self._unproven(results), *self._statements])
        self._record = replace(self._record, stages=tuple(results), unproven=tuple(unproven))
        self._write()

    def _unproven(self, results: Sequence[StageResult]) -> Iterator[str]:
        stages = {stage.name: stage for stage in self.stages}
        for result in results:
            if result.outcome != "passed":
                yield from (
                    f"{proof} ({result.name}: {result.outcome})"
                    for proof in stages[result.name].proves
                )

    def _write(self) -> None:
        json_files.write_json(self.out / RECORD, stored.dump(self._record))
        json_files.write_text(self.out / PAGE, page(self._record))


@dataclass(kw_only=True)
class _StageFindings:
    """Findings of a stage; `broken` is why a line of them cannot be read."""

    criteria: list[Criterion] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    unproven: list[str] = field(default_factory=list)
    end: Mapping[str, str] | None = None
    out_of_time: bool = False
    broken: str = ""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read the findings, up to the first that is broken."""
        stage_findings = cls()
        try:
            for finding in findings(folder):
                stage_findings._add(finding)
        except (GpubenchError, OSError, LookupError, TypeError, ValueError) as error:
            stage_findings.broken = f"a finding of it cannot be read: {error}".partition("\n")[0]
        return stage_findings

    def _add(self, finding: Json) -> None:
        if "criterion" in finding:
            criterion = stored.restore(Criterion, finding["criterion"], "a criterion", strict=True)
            self.criteria.append(criterion)
        if "row" in finding:
            self.rows.append(stored.restore(Row, finding["row"], "a row", strict=True))
        self.facts.update(finding.get("facts", {}))
        self.unproven += [finding["unproven"]] if "unproven" in finding else []
        self.end = finding.get("end", self.end)
        self.out_of_time |= "out_of_time" in finding

    def judged(self) -> tuple[StageOutcome, str]:
        """Outcome and reason of a process that ended by itself.

        A criterion that was not met counts before what the machine lacks. A stage without any has
        shown nothing.
        """
        if self.broken:
            return "crashed", self.broken
        if self.end is None:
            return "crashed", "its process ended before the stage did"
        if self.end["problem"] or not all(c.passed for c in self.criteria):
            return "failed", self.end["problem"] or self.end["unsupported"]
        if self.end["unsupported"]:
            return "unsupported", self.end["unsupported"]
        return ("passed", "") if self.criteria else ("failed", "it has no criterion")


def _end_of(output: Path) -> tuple[str, ...]:
    with suppress(OSError):  # a stage may have removed it
        return last_lines(output)
    return ()


def _supervised(stage: Stage, folder: Path, limit_s: float, output: Path) -> int:
    """Exit code of the stage's process under its supervisor, of which no process is left."""
    python = (sys.executable, "-P", "-m")
    command = [
        *(*python, f"{_MODULES}.supervisor", str(limit_s), str(os.getpid())),
        *(*python, f"{_MODULES}.stage", stage.program, str(folder), str(limit_s)),
    ]
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with _ended(process), suppress(subprocess.TimeoutExpired):
            return process.wait(limit_s + _SUPERVISOR_S)
    return supervisor.TIMED_OUT


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a supervisor on exit, which first kills what it watches over.

    Its process group is killed in any case: somebody else may have killed the supervisor alone.
    """
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SUPERVISOR_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _not_run(stage: Stage, reason: str) -> StageResult:
    return StageResult(name=stage.name, outcome="not_run", reason=reason, limit_s=stage.limit_s)


def _too_late(remaining_s: float, stage: Stage) -> str:
    return f"{max(0.0, remaining_s):.0f} s of the budget were left, it needs {stage.least_s:.0f}"


def _after(obstacle: StageResult, stage: Stage) -> StageResult:
    """Result of a stage that cannot run without the one that is the obstacle."""
    if obstacle.outcome == "unsupported":
        return replace(_not_run(stage, obstacle.reason), outcome="unsupported")
    return _not_run(stage, f"{obstacle.name}: {obstacle.outcome}: {obstacle.reason}")


def _exit_text(code: int) -> str:
    """Of a stage, or of a supervisor that was killed, whose code is negative."""
    if 0 <= code <= 128:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code if code < 0 else code - 128).name}"
    except ValueError:
        return f"exited with code {code}"


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def has_gpu(record: GpuCheck) -> bool:
    """Whether there was a GPU to check, or may have been: facts that crashed do not know."""
    return any(result.outcome != "unsupported" for result in record.stages)


def is_proven(record: GpuCheck) -> bool:
    """Whether no stage failed, was cut short, or never ran."""
    return all(result.outcome not in NOT_PROVEN for result in record.stages)
