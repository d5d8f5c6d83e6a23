"""Running benchmarks and reading runs from Python: what the package offers beside the fixtures."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import GpubenchError, UsageProblem, not_one_of
from gpubench_plugin.options import FLAGS, RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.records import RunRecord

Flag = str | int | bool | os.PathLike[str] | Iterable[str | int | os.PathLike[str]] | None

_USAGE: Final = 4
_IF_BARE: Final = {"gate": "=auto"}
"""What a flag means that may stand alone and does take a value."""

_REPEATED: Final = ("config", "set")
"""Flags that are given once for each of several values; others take them separated by commas."""


def run(
    *selection: str | os.PathLike[str],
    keyword: str = "",
    keys: Mapping[str, object] = {},
    options: Sequence[str] = (),
    cwd: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **flags: Flag,
) -> RunRecord:
    """Run the benchmarks of a `selection` with pytest in a process of its own; their record.

    A benchmark that fails does not raise: look at the record's `status` and at each benchmark's
    outcome. What pytest says goes where this process' output goes, unless `quiet`.

    Args:
        selection: files, folders and node ids, as pytest takes them.
        keyword: what pytest's ``-k`` takes.
        keys: keys of the configuration by dot key: ``{"training.batch_size": 64}``.
        options: further options of pytest, as they are.
        cwd: the folder to run in; default: this one.
        quiet: show nothing.
        flags: the plugin's flags, with ``_`` for ``-``: ``precision=["fp32", "amp"]``,
            ``world_size=2``, ``preset="tiny"``, ``gate=True``. None and False leave one out.

    Raises:
        UsageProblem: pytest did not understand what it was told, or it selects no benchmark.
        GpubenchError: pytest ended before a benchmark ran, and how.
    """
    here = Path.cwd() if cwd is None else Path(cwd)
    arguments = [
        *(os.fspath(part) for part in selection),
        *(("-k", keyword) if keyword else ()),
        *_flags({**flags, "set": [*_several(flags.get("set")), *_assignments(keys)]}),
        *options,
    ]
    with tempfile.TemporaryDirectory(prefix="gpubench-run-") as folder:
        told = Path(folder) / "run"
        code, said = _pytest(arguments, here, told, quiet=quiet)
        directory = told.read_text(encoding="utf-8") if told.exists() else None
    if directory is None:
        raise _no_run(code, said)
    return load_run(directory)


def load_run(
    path: str | os.PathLike[str], *, results_dir: str | os.PathLike[str] = "results"
) -> RunRecord:
    """The record of a run: of its folder, a file in it, its id or the id's beginning.

    An id is looked for below `results_dir`. A run that was killed is read as far as it came.

    Raises:
        UsageProblem: there is no such run.
        ResultsError: a file of it cannot be read or is not as it was written.
    """
    from gpubench_plugin.results.recorded import read_record
    from gpubench_plugin.results.run_directory import RunDirectory
    from gpubench_plugin.results.search import find_run

    text, here = os.fspath(path), Path.cwd()
    place = here / text
    if place.is_file():
        place = place.parent
    if place.is_dir():
        return read_record(RunDirectory.open(place))
    return read_record(find_run(here / results_dir, text, here=here))


def _flags(flags: Mapping[str, Flag]) -> list[str]:
    """The `flags` as arguments, by their long names, which are never another plugin's."""
    arguments = []
    for keyword, value in flags.items():
        name = keyword.replace("_", "-")
        if name not in FLAGS:
            raise not_one_of("run: flag", keyword, [flag.replace("-", "_") for flag in FLAGS])
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(f"--gpubench-{name}{_IF_BARE.get(name, '')}")
        elif name in _REPEATED:
            arguments += [f"--gpubench-{name}={text}" for text in _several(value)]
        else:
            arguments.append(f"--gpubench-{name}={','.join(_several(value))}")
    return arguments


def _several(value: Flag) -> list[str]:
    if value is None or isinstance(value, bool):
        return []
    if isinstance(value, str | int | os.PathLike):
        return [os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return [text for part in value for text in _several(part)]


def _assignments(keys: Mapping[str, object]) -> list[str]:
    """The `keys` as ``key=value``, values in YAML's words."""
    import json

    return [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in keys.items()
    ]


def _pytest(arguments: Sequence[str], cwd: Path, told: Path, *, quiet: bool) -> tuple[int, str]:
    """Run pytest to its end: its exit code, and what it wrote to its error output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=cwd,
        env={**os.environ, RUN_FILE: str(told)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if quiet else None,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
    )
    try:
        _, said = process.communicate()
    except KeyboardInterrupt:
        # The terminal has told pytest, too: it writes down what it has.
        process.communicate()
        raise
    if not quiet:
        sys.stderr.write(said)
    return process.returncode, said


def _no_run(code: int, said: str) -> GpubenchError:
    reason = said.strip().removeprefix("ERROR: ")
    if code == _USAGE:
        return UsageProblem(reason or "pytest did not understand its arguments")
    if code in {0, 5}:
        return UsageProblem("no benchmark was selected")
    return GpubenchError(f"pytest ended with exit code {code} before a benchmark ran\n{reason}")
