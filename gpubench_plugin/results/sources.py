"""Run sources for comparisons: run directories, summaries, pytest-benchmark files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.core.records import Run
from gpubench_plugin.results import pytest_benchmark_files
from gpubench_plugin.results.reader import RunReader, intact, run_of_summary
from gpubench_plugin.results.run_directory import RunDirectory, find_run
from gpubench_plugin.system import files, json_files


def load_run(text: str, *, results_dir: Path, cwd: Path) -> Run:
    """Load the run that `text` names, labelled `text`.

    `text` is a run directory, a file in it (``summary.json``, ``metrics.jsonl``), a
    pytest-benchmark file, or the prefix of a run id below `results_dir`. Paths are relative to
    `cwd`, folders also to `results_dir`.

    Raises:
        UsageProblem: there is no such run, or the file is broken or of another kind.
        ResultsError: the operating system refuses to read it.
    """
    path = cwd / text
    with files.refusals("read", text):
        is_folder = path.is_dir() or (results_dir / text).is_dir()
        if text and path.exists() and not path.is_dir():
            with intact(path):
                return _run_in_file(path, text)
        if text.endswith((".json", ".jsonl")) and not is_folder:
            json_files.load(path)  # raises the reason
    return RunReader(find_run(results_dir, text, cwd=cwd)).run(text)


def _run_in_file(path: Path, text: str) -> Run:
    directory = RunDirectory(path=Path(os.path.realpath(path)).parent)
    if path.name == directory.journal.name:
        return RunReader(directory).run_from_journal(text)
    document = json_files.load(path)
    if pytest_benchmark_files.is_pytest_benchmark_file(document):
        return pytest_benchmark_files.parse_run(document, text, path)
    if isinstance(document, Mapping) and {"schema_version", "run_id"} <= document.keys():
        return run_of_summary(path, document, text)
    raise BrokenFile(
        f"{path} is neither a run summary nor a pytest-benchmark file: it has no machine_info and "
        "benchmarks"
    )
