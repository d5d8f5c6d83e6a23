"""Pages of evidence, and tables of what the code tells of cases whose truth is known.

A script of simulations names its cases and what it counts; here they are run, by several processes,
once with the package of this checkout and once with that of the one given as ``--against``. The
draws are seeded: the numbers are the same each time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

Row = Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A table of a page: its title, and a row for each case."""

    title: str
    columns: Sequence[str]
    cases: Mapping[str, Any]


def save(page: str, *parts: str) -> None:
    """Write the page of that name in ``docs/evidence/``, with an empty line between its parts."""
    path = ROOT / "docs" / "evidence" / page
    path.write_text("\n".join(filter(None, parts)), encoding="utf-8")
    sys.stdout.write(f"{path}\n")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table: its titles, then its rows, a cell for each column."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def asked() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path, help="a checkout of the code to compare with")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def write(
    page: str,
    introduction: str,
    tables: Sequence[Table],
    counted: Callable[[Any], Row],
    conclusion: str = "",
) -> None:
    """Run all cases, and write the page; for the other checkout's numbers, print the cells."""
    options = asked()
    cells = _counted(tables, counted, options.processes)
    if options.json:
        json.dump(cells, sys.stdout)
        return
    before = _before(options) if options.against else None
    parts = [introduction]
    for index, (table, rows) in enumerate(zip(tables, cells, strict=True)):
        parts.append(_section(table, rows, before[index] if before else None))
    save(page, *parts, conclusion)


_todo: list[tuple[Callable[[Any], Row], Any]] = []
"""What there is to count. The processes inherit it: functions without a name cannot be sent."""


def _counted(
    tables: Sequence[Table], counted: Callable[[Any], Row], processes: int
) -> list[dict[str, Row]]:
    _todo[:] = [(counted, case) for table in tables for case in table.cases.values()]
    gc.freeze()  # each measurement collects garbage first
    # Each case begins with the draws as they were made, whoever counts it, and after whatever else.
    with get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        rows = iter(pool.map(_row, range(len(_todo)), chunksize=1))
    return [{name: next(rows) for name in table.cases} for table in tables]


def _row(index: int) -> Row:
    counted, case = _todo[index]
    return counted(case)


def _before(options: argparse.Namespace) -> list[dict[str, Row]]:
    done = subprocess.run(
        [sys.executable, sys.argv[0], "--json", f"--processes={options.processes}"],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(options.against.resolve())},
    )
    rows: list[dict[str, Row]] = json.loads(done.stdout)
    return rows


def _section(table: Table, rows: Mapping[str, Row], before: Mapping[str, Row] | None) -> str:
    """Each cell with the one of before in brackets."""
    lines = []
    for name, row in rows.items():
        old = before[name] if before else {}
        cells = (
            f"{row[column]} ({old[column]})" if column in old else row[column]
            for column in table.columns
        )
        lines.append((name, *cells))
    return f"## {table.title}\n\n{markdown(('', *table.columns), lines)}"
