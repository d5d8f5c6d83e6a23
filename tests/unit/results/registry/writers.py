"""Processes that write a registry at once, or are killed while they do; run as a program.

The libraries are imported once, then it forks: every child is a process of its own.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.cli.main import main as main_command
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.results import verdicts
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import runs_in


def main() -> None:
    job, url, results_dir, count, *more = sys.argv[1:]
    jobs = {"create": create, "write": write, "kill": kill, "change": change}
    jobs[job](url, Path(results_dir), int(count), *map(int, more))


def create(url: str, results_dir: Path, count: int) -> None:
    """`count` processes open a database that is not there."""
    _all_succeed(count, lambda _: Registry.open(url, results_dir).close())


def write(url: str, results_dir: Path, count: int) -> None:
    """`count` processes store all runs at once, each in another order."""

    def store(number: int) -> None:
        runs = runs_in(results_dir)
        with Registry.open(url, results_dir) as registry:
            for run in runs[number:] + runs[:number]:
                registry.ingest(run)

    _all_succeed(count, store)


def change(url: str, results_dir: Path, count: int) -> None:
    """`count` processes change one baseline, in documents and in a file, and one run's tags.

    Each accepts a benchmark, gives a tag and takes another.
    """
    run = runs_in(results_dir)[0]
    where = [f"--registry={url}", f"--results-dir={results_dir}"]

    def accept_and_tag(number: int) -> None:
        with Registry.open(url, results_dir) as registry:
            for baselines in (Baselines(results_dir, registry), Baselines(results_dir)):
                baselines.accept("main", "run", f"test_{number}", reason="meant")
        for tags in ([f"new{number}"], [f"old{number}", "--remove"]):
            if main_command(["runs", "tag", run.run_id, *tags, *where]) != 0:
                raise AssertionError(tags)

    _all_succeed(count, accept_and_tag)


def kill(url: str, results_dir: Path, count: int, seed: int) -> None:
    """Kill a process that stores changed runs, `count` times; print the runs it had stored."""
    chance = random.Random(seed)
    stored: set[str] = set()
    for number in range(count):
        told, tell = os.pipe()
        child = _forked(
            lambda number=number, tell=tell: _store_changes(url, results_dir, number, tell)
        )
        os.close(tell)
        with os.fdopen(told, "rb") as lines:
            for _ in range(chance.randint(1, 3)):
                stored.add(lines.readline().decode().strip())
            time.sleep(chance.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            stored.update(line.decode().strip() for line in lines if line.endswith(b"\n"))
    sys.stdout.write("\n".join(sorted(stored)))


def _store_changes(url: str, results_dir: Path, number: int, tell: int) -> None:
    chance = random.Random(number)
    with Registry.open(url, results_dir) as registry:
        os.write(tell, b"\n")  # it is on its way
        while True:
            run = chance.choice(runs_in(results_dir))
            changed = Comparison(base="main", head=f"{number}-{chance.random()}", verdicts=())
            run.verdicts.write_text(verdicts.to_text([changed]))
            registry.ingest(run)
            os.write(tell, f"{run.run_id}\n".encode())


def _all_succeed(count: int, work: Callable[[int], None]) -> None:
    start, go = os.pipe()

    def wait_and_work(number: int) -> None:
        os.close(go)
        os.read(start, 1)  # until the parent closes the other end
        work(number)

    children = [_forked(lambda number=number: wait_and_work(number)) for number in range(count)]
    os.close(go)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    sys.exit(f"{len(failed)} of {count} failed" if failed else 0)


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
