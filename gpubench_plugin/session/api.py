"""The Python API: run benchmarks in a subprocess and load run records."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from gpubench_plugin.config.options import RUN_FILE
from gpubench_plugin.config.settings import FLAGS
from gpubench_plugin.core.errors import GpubenchError, UsageProblem, invalid_choice
from gpubench_plugin.core.records import RunRecord
from gpubench_plugin.system.child_process import last_lines, running
from gpubench_plugin.system.signals import exit_on_signals

Flag = str | int | bool | os.PathLike[str] | Iterable[str | int | os.PathLike[str]] | None

_USAGE: Final = 4
_RAN: Final = (0, 5)
"""Exit codes of pytest that ran its tests or collected none; a benchmark would have left a run."""
_GRACE_S: Final = 20.0
"""Long enough for pytest to write its results after a signal."""
_NOTEBOOK_WIDTH: Final = 120
"""Columns of a cell's output on a common screen."""
_MAX_LINES: Final = 200
"""Last lines of output, for the message of an error."""


class PrintableRun(RunRecord):
    """Record of a run with the table of its benchmarks: for scripts, and for notebooks as HTML."""

    def table(self, width: int | None = None) -> str:
        """Table of the benchmarks as pytest ends with: numbers, doubts, reasons, and counts.

        `width` is in columns; by default the terminal's, or that of a notebook's cell.
        """
        from gpubench_plugin.reports.markup import plain
        from gpubench_plugin.reports.terminal import closing_lines

        if width is None:
            width = shutil.get_terminal_size((_NOTEBOOK_WIDTH, 24)).columns
        return "\n".join(map(plain, closing_lines(self.benchmarks, width)))

    def _repr_html_(self) -> str:
        from gpubench_plugin.reports.html.notebook import figures

        heading = f"{self.run_id} ({self.experiment}): {self.status}"
        table = f"<pre>{escape(heading)}\n\n{escape(self.table(_NOTEBOOK_WIDTH))}</pre>"
        return table + figures(self)


def run(
    *selection: str | os.PathLike[str],
    keyword: str = "",
    keys: Mapping[str, object] = {},
    options: Sequence[str] = (),
    cwd: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **flags: Flag,
) -> PrintableRun:
    """Run a `selection` of benchmarks with pytest in a subprocess and return the run's record.

    A failed benchmark does not raise: see the record's `status` and each benchmark's outcome.

    Args:
        selection: files, folders and node ids, as arguments of pytest.
        keyword: expression of pytest's ``-k``.
        keys: configuration by dot key, values of JSON or paths: ``{"training.batch_size": 64}``.
        options: further options of pytest.
        cwd: working directory.
        quiet: whether to hide pytest's output.
        flags: the plugin's flags, with ``_`` for ``-``: ``precision=["fp32", "amp"]``,
            ``world_size=2``, ``preset="tiny"``, ``gate=True``. None and False leave one out.

    Raises:
        UsageProblem: an argument is invalid, no benchmark is selected, all of them lack a package,
            or pytest imported the script that calls this.
        GpubenchError: pytest ended before a benchmark ran.
    """
    working_dir = Path.cwd() if cwd is None else Path(cwd)
    if RUN_FILE in os.environ:  # until the run directory exists
        raise UsageProblem(
            "run: pytest imported the script that called run(), which would start pytest "
            'again in an endless loop; guard the call with `if __name__ == "__main__":` and '
            "keep the script out of the selection"
        )
    assignments = [f"{key}={_yaml_value(value)}" for key, value in keys.items()]
    arguments = [
        *(os.fspath(path) for path in selection),
        *(("-k", keyword) if keyword else ()),
        *_flags({**flags, "set": [*_as_list(flags.get("set")), *assignments]}),
        *options,
    ]
    with tempfile.TemporaryDirectory(prefix="gpubench-run-") as folder:
        code, out, errors = _pytest(arguments, working_dir, Path(folder), quiet=quiet)
        run_file = Path(folder, "run")
        directory = run_file.read_text(encoding="utf-8") if run_file.exists() else None
    if directory is None:
        raise _not_run_error(code, out, errors)
    record = load_run(directory)
    if code == _USAGE and {b.outcome for b in record.benchmarks} <= {"skipped", "unsupported"}:
        reasons = dict.fromkeys(b.reason for b in record.benchmarks if b.outcome == "unsupported")
        raise UsageProblem(f"nothing was measured: {'; '.join(reasons)}")
    return record


def load_run(
    path: str | os.PathLike[str], *, results_dir: str | os.PathLike[str] | None = None
) -> PrintableRun:
    """Load the record of a run, given its folder, a file in it, its id or an id prefix.

    Ids are searched for in `results_dir`, by default that of the project which the current
    directory is in. A killed run has the benchmarks that it finished.

    Raises:
        UsageProblem: there is no such run.
        ResultsError: a file of it is unreadable or malformed.
    """
    from gpubench_plugin.config.settings import results_dir_from
    from gpubench_plugin.results.reader import RunReader
    from gpubench_plugin.results.run_directory import find_run

    cwd = Path.cwd()
    folder = results_dir_from(cwd, results_dir)
    record = RunReader(find_run(folder, os.fspath(path), cwd=cwd)).record(with_events=True)
    return PrintableRun(**vars(record))


def _flags(flags: Mapping[str, Flag]) -> list[str]:
    """Convert `flags` to command-line arguments, using long option names only."""
    arguments = []
    for keyword, value in flags.items():
        name = keyword.replace("_", "-")
        if name not in FLAGS:
            names = [flag.replace("-", "_") for flag in FLAGS]
            raise invalid_choice("run", keyword, names, noun="argument ")
        if value is None or value is False:
            continue
        if value is True:
            alone = FLAGS[name].alone
            arguments.append(f"--gpubench-{name}={alone}" if alone else f"--gpubench-{name}")
        elif FLAGS[name].action == "append":  # repeated; others take a comma-separated list
            arguments += [f"--gpubench-{name}={text}" for text in _as_list(value)]
        else:
            arguments.append(f"--gpubench-{name}={','.join(_as_list(value))}")
    return arguments


def _as_list(value: Flag) -> list[str]:
    if value is None or isinstance(value, bool):
        return []
    if isinstance(value, str | int | os.PathLike):
        return [os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return [text for part in value for text in _as_list(part)]


def _yaml_value(value: object) -> str:
    import json

    return str(value) if isinstance(value, str | os.PathLike) else json.dumps(value)


def _pytest(
    arguments: Sequence[str], cwd: Path, folder: Path, *, quiet: bool
) -> tuple[int, str, str]:
    """Run pytest and return its exit code and the tails of its output if `quiet`, and errors.

    `folder` receives both, and the path of the run in the file ``run``.
    """
    out, errors = folder / "out", folder / "errors"
    with (
        exit_on_signals(),  # pytest has a session of its own, which no group's signal reaches
        out.open("wb") as stdout,
        errors.open("wb") as stderr,
        running(
            [sys.executable, "-m", "pytest", *arguments],
            grace_s=_GRACE_S,
            cwd=cwd,
            environ={**os.environ, RUN_FILE: str(folder / "run")},
            stdout=stdout if quiet else None,
            stderr=stderr,
        ) as child,
    ):
        code = child.wait()
    assert code is not None  # it was waited for without a limit
    if not quiet:
        sys.stderr.write(errors.read_text(errors="backslashreplace"))
    output, error_output = ("\n".join(last_lines(file, _MAX_LINES)) for file in (out, errors))
    return code, output, error_output


def _not_run_error(code: int, stdout: str, stderr: str) -> GpubenchError:
    _, separator, message = f"\n{stderr}".partition("\nERROR: ")
    reason = (message if separator else stderr).strip()
    if code == _USAGE:
        return UsageProblem(reason or "pytest did not understand its arguments")
    if code in _RAN or (code == 1 and not reason):  # Python itself fails with 1
        return UsageProblem("no benchmark was selected")
    details = "\n".join(text for text in (reason, stdout.strip()) if text)
    return GpubenchError(f"pytest ended with exit code {code} before a benchmark ran\n{details}")
