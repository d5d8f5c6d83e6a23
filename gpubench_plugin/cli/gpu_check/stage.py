"""A stage of the check, and what it may use while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from gpubench_plugin.cli.gpu_check.record import Bound, Criterion, Part, Row
from gpubench_plugin.core.errors import BrokenFile, Unsupported, UsageProblem
from gpubench_plugin.core.records import Json, Measurement, RunRecord
from gpubench_plugin.environment import json_files, stored
from gpubench_plugin.environment.child_process import last_lines

PROGRESS: Final = "progress.jsonl"
"""File of a stage's folder with a line for each finding, so that one that is killed keeps them."""

_END_S: Final = 10.0
"""Time that pytest gets to write its results, before the stage's own ends; not measured."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage: `program` is its function as ``module:function``, called with a :class:`StageRun`.

    It is not begun with less than `least_s` left of the budget. `proves` are the statements that
    it shows if it passes. Nothing can be checked without a `required` one.
    """

    name: str
    parts: tuple[Part, ...]
    limit_s: float
    program: str
    proves: tuple[str, ...] = ()
    least_s: float = 40.0
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session of pytest that a stage ran.

    `code` is None if it was ended at its limit, `run` and its `folder` without benchmarks.
    """

    code: int | None
    run: RunRecord | None
    folder: Path | None

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Outcomes of the benchmarks, in their order."""
        return tuple(benchmark.outcome for benchmark in self.benchmarks)

    @property
    def benchmarks(self) -> tuple[Measurement, ...]:
        """The benchmarks that came to an end."""
        return () if self.run is None else self.run.benchmarks

    @property
    def device_name(self) -> str:
        """Full name of the device that was measured on."""
        environment = {} if self.run is None else self.run.environment
        return str(environment.get("device", {}).get("model", ""))

    @property
    def traces(self) -> list[Path]:
        """Files that ``--profile`` wrote."""
        return [] if self.folder is None else sorted((self.folder / "traces").glob("*.json"))


@dataclass(kw_only=True)
class StageRun:
    """A running stage: where it is, what it measures on, and what it has found.

    `folder` is its own, `repository` the working directory of the user. `device` and `preset` are
    those of its benchmarks.
    """

    folder: Path
    repository: Path
    limit_s: float
    device: str = "cuda"
    preset: str = "full"
    _start: float = field(default_factory=monotonic)

    @property
    def remaining_s(self) -> float:
        """Seconds until the stage is killed."""
        return max(0.0, self._start + self.limit_s - monotonic())

    def check(
        self, name: str, value: float | None, bound: Bound, limit: float, unit: str = ""
    ) -> Criterion:
        """Judge `value` by `limit`; an unknown one (None) does not pass."""
        criterion = Criterion.of(name, value, bound, limit, unit)
        self._note(criterion=stored.dump(criterion))
        return criterion

    def fact(self, **facts: object) -> None:
        """Record numbers and texts that are no criteria."""
        self._note(facts=facts)

    def row(self, row: Row) -> None:
        """Record the numbers of a benchmark."""
        self._note(row=stored.dump(row))

    def unproven(self, statement: str) -> None:
        """Record what the stage cannot show here, and why."""
        self._note(unproven=statement)

    def end(self, *, unsupported: str = "", problem: str = "") -> None:
        """Record that the stage came to its end, that the machine lacks what it needs, or the user.

        A `problem` is one that the user can mend.
        """
        self._note(end={"unsupported": unsupported, "problem": problem})

    def file_of_suite(self, path: str) -> Path:
        """File below the working directory.

        Raises:
            UsageProblem: there is none, as outside a checkout of the suite.
        """
        file = self.repository / path
        if not file.exists():
            raise UsageProblem(
                f"there is no {path} in the current directory: run it in a checkout of gpubench"
            )
        return file

    def project(self, name: str, source: str) -> Path:
        """Write a file of benchmarks into a folder of its own; return the folder."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="ascii")
        (folder / "test_it.py").write_text(source, encoding="utf-8")
        return folder

    def pytest(
        self,
        name: str,
        *arguments: str,
        cwd: Path,
        launcher: Sequence[str] = ("-m", "pytest"),
        limit_s: float | None = None,
        environ: Mapping[str, str] = {},
    ) -> Session:
        """Run pytest on the stage's device with `arguments`; it is ended in time to be read."""
        results = self.folder / f"{name}-results"
        command = [
            *(sys.executable, *launcher, *arguments),
            *(f"--gpubench-device={self.device}", f"--gpubench-results-dir={results}"),
            *("--gpubench-registry=none", "-p", "no:cacheprovider", "--color=no"),
        ]
        code = self.execute(name, command, cwd=cwd, environ=environ, limit_s=limit_s)
        run = next(iter(sorted(results.glob("*/*/metrics.jsonl"))), None)
        return Session(
            code=code,
            run=None if run is None else _loaded(run.parent),
            folder=None if run is None else run.parent,
        )

    def execute(
        self,
        name: str,
        command: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str] = {},
        limit_s: float | None = None,
    ) -> int | None:
        """Run a command, with its output in a file, whose end becomes the stage's output.

        Returns its exit code, None if it had to be ended, at `limit_s` or so early that the stage
        can still read what it left: then the stage is out of time.
        """
        reading_s = self.remaining_s - _END_S
        output = self.folder / f"{name}.txt"
        code = self._run(
            output, command, cwd, environ, reading_s if limit_s is None else min(limit_s, reading_s)
        )
        if code is None and limit_s is None:
            self._note(out_of_time=True)
        sys.stdout.write("\n".join((f"{name}: exit code {code}", *last_lines(output), "")))
        sys.stdout.flush()
        return code

    def _run(
        self,
        output: Path,
        command: Sequence[str],
        cwd: Path,
        environ: Mapping[str, str],
        limit_s: float,
    ) -> int | None:
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                return process.wait(max(0.0, limit_s))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S / 2)
                return None
            finally:
                process.kill()
                process.wait()

    def _note(self, **finding: object) -> None:
        line = json_files.text(finding)
        with (self.folder / PROGRESS).open("a", encoding="ascii") as file:
            file.write(f"{line}\n")


def _loaded(folder: Path) -> RunRecord:
    from gpubench_plugin.session.api import load_run

    return load_run(folder)


def findings(folder: Path) -> Iterator[Json]:
    """Findings of the stage whose folder this is, without a last line that was cut off.

    Raises:
        BrokenFile: another line is not an object.
    """
    try:
        data = (folder / PROGRESS).read_bytes()
    except FileNotFoundError:
        return
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            finding = json_files.parse(line, PROGRESS)
            if not isinstance(finding, dict):
                raise BrokenFile(f"{PROGRESS} has a line that is no object")
            yield finding


def main(arguments: Sequence[str]) -> None:
    """Run the stage: its function, folder and limit are the arguments."""
    from importlib import import_module

    program, folder, limit_s = arguments
    module, _, function = program.partition(":")
    run = StageRun(folder=Path(folder), repository=Path.cwd(), limit_s=float(limit_s))
    try:
        getattr(import_module(module), function)(run)
    except Unsupported as error:
        run.end(unsupported=str(error))
    except UsageProblem as error:
        run.end(problem=str(error))
    else:
        run.end()


if __name__ == "__main__":
    main(sys.argv[1:])
