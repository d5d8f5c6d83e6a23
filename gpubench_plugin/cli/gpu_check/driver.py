"""Runs the stages within the budget, and rewrites the record after each.

It never imports torch, and so takes nothing of the GPU.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal

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
from gpubench_plugin.environment import json_files, last_lines, stored

RECORD: Final = "gpu-check.json"
PAGE: Final = "gpu-check.md"

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
            ResultsError: the record could not be written.
            KeyboardInterrupt: the stage that was interrupted is on record as ``cut``.
        """
        start = self.now()
        stages = [s for s in self.stages if self.part == "all" or self.part in s.parts]
        self._record = GpuCheck(part=self.part, budget_s=self.budget_s, started=_utc_now())
        self._record = replace(
            self._record, stages=tuple(_not_run(stage, "not reached") for stage in stages)
        )
        folder = self.out / "stages"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
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
            if stage.required and result.outcome not in {"passed", "failed"}:
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
        result = StageResult(
            name=stage.name,
            outcome="crashed",
            limit_s=limit_s,
            seconds=max(0.0, self.now() - start),
        )
        result = self._with_findings(result, stage, folder)
        if code == supervisor.TIMED_OUT:
            is_cut = limit_s < stage.limit_s
            reason = f"{limit_s:.0f} s of the budget were left" if is_cut else ""
            result = replace(
                result,
                outcome="cut" if is_cut else "hang",
                reason=reason or f"it was killed after its limit of {limit_s:.0f} s",
            )
        elif code:
            lines = last_lines(output)
            reason = f"its process {_exit_text(code)}{f': {lines[-1]}' if lines else ''}"
            result = replace(result, outcome="crashed", reason=reason)
        if result.outcome in {"passed", "unsupported"}:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            result = replace(result, last_lines=last_lines(output))
        return result

    def _with_findings(self, result: StageResult, stage: Stage, folder: Path) -> StageResult:
        """Read the stage's findings: its own, and those of the whole record."""
        criteria: list[Criterion] = []
        rows: list[Row] = []
        facts: dict[str, Any] = {}
        outcome: StageOutcome = "crashed"
        reason = "its process ended before the stage did"
        for finding in findings(folder):
            if "criterion" in finding:
                criteria.append(stored.restore(Criterion, finding["criterion"], stage.name))
            facts.update(finding.get("facts", {}))
            if "row" in finding:
                rows.append(stored.restore(Row, finding["row"], stage.name))
            if statement := finding.get("unproven"):
                self._statements.append(statement)
            if "end" in finding:
                reason = finding["end"]["unsupported"]
                outcome = "unsupported" if reason else _judged(criteria)
        if stage.required:
            self._record = replace(
                self._record,
                device=facts.pop("device", None),
                versions=facts.pop("versions", {}),
            )
        self._record = replace(self._record, rows=(*self._record.rows, *rows))
        return replace(
            result, outcome=outcome, reason=reason, criteria=tuple(criteria), facts=facts
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
    """End a supervisor on exit, which first kills what it watches over."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SUPERVISOR_S)
            with suppress(ProcessLookupError):
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


def _judged(criteria: Sequence[Criterion]) -> StageOutcome:
    """A stage without any criterion has shown nothing."""
    return "passed" if criteria and all(c.passed for c in criteria) else "failed"


def _exit_text(code: int) -> str:
    if code <= 128:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"exited with code {code}"


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def has_gpu(record: GpuCheck) -> bool:
    """Whether there was a GPU to check."""
    return record.device is not None


def is_proven(record: GpuCheck) -> bool:
    """Whether no stage failed, was cut short, or never ran."""
    return all(result.outcome not in NOT_PROVEN for result in record.stages)
