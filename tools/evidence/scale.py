"""How the registry's queries grow with what is stored: the tables of docs/evidence/scale.md.

    python tools/evidence/scale.py [--most=1000000] [--postgresql=URL of an empty database]

Runs of 50 benchmarks with 20 metrics each are made up, of which four in five are on ``main``. The
same database is filled further and further, and asked at each size. Needs about 1 GB per million
results in the folder for temporary files.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select, text

from gpubench_plugin.core.records import Measurement, Metric, RunRecord
from gpubench_plugin.results.registry.ingest import to_microseconds
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.registry.tables import RESULTS, RUNS
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.results.summary import write_summary

BENCHMARKS = 50
METRICS = 20
LAST = 30
REPEATS = 40
PAUSE_S = 0.05
SIZES = (1_000, 10_000, 100_000, 500_000, 1_000_000)
IDS = [f"benchmarks/training/test_model{n}.py::test_model{n}[amp]" for n in range(BENCHMARKS)]
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Measure one database, or two, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--most", type=int, default=SIZES[-1], help="stored results")
    parser.add_argument("--postgresql", metavar="URL", help="an empty database")
    options = parser.parse_args()
    load = f"load average {os.getloadavg()[0]:.1f} at the start"
    print(f"{os.cpu_count()} processors, {load}, Python {sys.version.split()[0]}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        sound = measure("SQLite", "", Path(name), options.most)
        if options.postgresql:
            sound &= measure("PostgreSQL", options.postgresql, Path(name), options.most)
    sys.exit(0 if sound else 1)


def measure(kind: str, url: str, folder: Path, most: int) -> bool:
    """Fill and ask one database; whether it kept to its bounds."""
    rates(kind, url, folder)
    print(f"\n{kind}: best of {REPEATS}, in ms; in brackets µs per row")
    print(f"{'results':>9} {'runs':>6} {'B/result':>8}  {'1 benchmark':>16}  {'50, one metric':>16}"
          f"  {'50, all metrics':>16}")  # fmt: skip
    per_row: list[list[float]] = []
    bound = True
    stored = 0
    for size in (size for size in SIZES if size <= most):
        with Registry.open(url, folder) as registry:
            fill(registry, stored // BENCHMARKS, size // BENCHMARKS)
            stored = size
            times = [best(ask) for ask in questions(registry)]
        per_row.append([seconds / rows for seconds, rows in times])
        cells = "  ".join(f"{s * 1e3:8.2f} ({s / n * 1e6:4.1f})" for s, n in times)
        bytes_each = bytes_of(url, folder) / size
        print(f"{size:9} {size // BENCHMARKS:6} {bytes_each:8.0f}  {cells}", flush=True)
        if size == 500_000 and not url:
            bound = max(seconds for seconds, _ in times) <= 0.05
            print(
                f"last {LAST} of {BENCHMARKS} benchmarks out of 10,000 runs within 50 ms: {bound}"
            )
    grown = [last / first for first, last in zip(per_row[0], per_row[-1], strict=True)]
    allowed = math.log(stored) / math.log(SIZES[0])
    print(
        f"grown per row by {', '.join(f'{g:.2f}' for g in grown)}; the logarithm by {allowed:.2f}"
    )
    return bound and all(g <= allowed for g in grown)


def questions(registry: Registry) -> Iterator[Callable[[], int]]:
    """What is asked; each returns the number of rows it got."""

    def earlier(ids: list[str]) -> int:
        runs = registry.earlier(ids, branch="main", since="", limit=LAST, fingerprints={})
        return sum(len(run.results) for run in runs)

    def points() -> int:
        return sum(len(registry.points(i, "step_time_s", branch="main", limit=LAST)) for i in IDS)

    yield lambda: earlier(IDS[:1])
    yield points
    yield lambda: earlier(IDS)


def best(ask: Callable[[], int]) -> tuple[float, int]:
    """The shortest time of a question in seconds, and its rows."""
    rows = ask()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        ask()
        times.append(time.perf_counter() - begin)
        time.sleep(PAUSE_S)  # what else the machine does should not disturb all of them
    return min(times), rows


def fill(registry: Registry, first: int, end: int) -> None:
    """Store made-up runs with these numbers, many in one transaction."""
    with tempfile.TemporaryDirectory() as name:
        registry.ingest(written(Path(name), 0))
    with registry.database.writing(without_timeout=True) as connection:
        run = dict(connection.execute(RUNS.select().limit(1)).mappings().one())
        rows = [dict(r) for r in connection.execute(RESULTS.select().limit(BENCHMARKS)).mappings()]
        highest = connection.execute(select(func.max(RUNS.c.key))).scalar_one()
        for start in range(max(first, 1), end, 100):
            numbers = range(start, min(start + 100, end))
            facts = {n: of_run(n, highest - start + n + 1) for n in numbers}
            connection.execute(insert(RUNS), [{**run, **facts[n]} for n in numbers])
            highest += len(numbers)
            results = [of_result(row, facts[n]) for n in numbers for row in rows]
            connection.execute(insert(RESULTS), results)
    with registry.database.reading() as connection:
        connection.execute(text("ANALYZE"))


def of_run(number: int, key: int) -> dict[str, Any]:
    """What tells one run from another."""
    started = FIRST + timedelta(minutes=number)
    return {
        "key": key,
        "run_id": f"{started:%Y%m%dT%H%M%SZ}_run_{number:06x}",
        "started": f"{started:%Y-%m-%dT%H:%M:%S.%fZ}",
        "started_us": to_microseconds(started.isoformat()),
        "branch": "main" if number % 5 else f"topic{number}",
    }


def of_result(row: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """The same benchmark in another run, with other numbers."""
    noise = random.gauss(1, 0.01)
    return {
        **row,
        "run": run["key"],
        "branch": run["branch"],
        "started_us": run["started_us"],
        "metrics": {name: value * noise for name, value in row["metrics"].items()},
    }


def written(results_dir: Path, number: int) -> RunDirectory:
    """A made-up run's directory."""
    facts = of_run(number, 0)
    directory = RunDirectory(path=results_dir.resolve() / "scale" / facts["run_id"])
    directory.path.mkdir(parents=True)
    directory.journal.touch()
    git = {"commit": "0" * 40, "branch": "main", "dirty": False}
    chance = random.Random(number)
    record = RunRecord(
        run_id=facts["run_id"],
        experiment="scale",
        status="complete",
        started=facts["started"],
        finished=facts["started"],
        command=(),
        environment={"cpu": {"model": "made up"}, "git": git},
        benchmarks=tuple(measurement(i, chance) for i in IDS),
    )
    write_summary(directory.summary, record)
    return directory


def measurement(node_id: str, chance: random.Random) -> Measurement:
    """A made-up benchmark with as many metrics as a real one."""
    names = ["step_time_s", *(f"some_other_metric_{n}" for n in range(METRICS - 1))]
    return Measurement(
        id=node_id,
        name=node_id.rpartition("::")[2],
        params={"precision": "amp", "world_size": "1"},
        world_size=1,
        outcome="measured",
        timer="perf_counter",
        settings={"training.batch_size": 8},
        metrics={
            name: Metric(name=name, value=chance.random(), unit="s", better="lower")
            for name in names
        },
    )


def rates(kind: str, url: str, folder: Path, runs: int = 100) -> None:
    """Print how fast run directories are stored, one transaction each, and rebuilt."""
    with tempfile.TemporaryDirectory() as name:
        results_dir = Path(name)
        for number in range(runs):
            written(results_dir, number)
        place = url or f"sqlite:///{folder / 'rates.sqlite'}"
        with Registry.open(place, results_dir) as registry:
            if registry.runs(limit=1):
                sys.exit(f"{kind}: the database is not empty")
            begin = time.perf_counter()
            registry.ingest_all()
            stored = time.perf_counter() - begin
            begin = time.perf_counter()
            registry.rebuild()
            rebuilt = time.perf_counter() - begin
            for row in registry.runs():
                registry.forget(row.run_id)
    print(f"\n{kind}: {runs} run directories of {BENCHMARKS} benchmarks: "
          f"{runs / stored:.0f} runs/s stored, {runs / rebuilt:.0f} runs/s rebuilt")  # fmt: skip


def bytes_of(url: str, folder: Path) -> int:
    """The size of the database."""
    if not url:
        return sum(file.stat().st_size for file in folder.glob("registry.sqlite*"))
    with Registry.open(url, folder) as registry, registry.database.reading() as connection:
        query = text("SELECT pg_database_size(current_database())")
        return int(connection.execute(query).scalar_one())


if __name__ == "__main__":
    main()
