"""What the plugin costs a project that does not use it, in processor time.

Runs pytest on a project with one ordinary test, with the installed plugin and with
``-p no:gpubench``, in turn, and prints the medians and the median of the paired differences. Exit
code 1 above the budget.

With ``--against=TREE``, another checkout of this project, importing the plugin alone is timed in
this tree and in that one, in turn: a fresh process each, bytecode compiled, garbage collection
off, after pytest and pytest-benchmark are loaded. Exit code 1 where this tree is the slower one by
more than a tenth.

    python tools/evidence/import_cost.py [--pairs=20] [--against=TREE]
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from gpubench_plugin.measure.interval import median_interval

BUDGET_MS = 10.0
SLOWER = 1.1
HERE = Path(__file__).parents[2]

IMPORT = """
import gc, importlib, time, pytest, pytest_benchmark.plugin
gc.disable()
start = time.process_time_ns()
import gpubench_plugin.plugin
for module in getattr(gpubench_plugin.plugin, "pytest_plugins", ()):
    importlib.import_module(module)
print((time.process_time_ns() - start) / 1e6)
"""


def main(pairs: int, against: Path | None) -> int:
    """Print the tables; 1 if the plugin costs more than it may."""
    within = [_sessions(pairs)]
    if against is not None:
        within.append(_imports(pairs, against))
    return int(not all(within))


def _sessions(pairs: int) -> bool:
    """Whether the plugin adds no more than its budget to a session without benchmarks."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "pytest.ini").write_text("[pytest]\n")
        (project / "test_it.py").write_text("def test_x():\n    pass\n")
        added = _in_turn(
            pairs,
            "-p no:gpubench",
            lambda: _session(project, "-p", "no:gpubench"),
            "the plugin",
            lambda: _session(project),
        )
    print(f"budget {BUDGET_MS:g} ms\n")
    return added <= BUDGET_MS


def _imports(pairs: int, against: Path) -> bool:
    """Whether importing takes no longer here than in the other tree."""
    for tree in (against, HERE):
        compileall.compile_dir(tree / "gpubench_plugin", quiet=2)
    there = median(_import(against) for _ in range(5))
    slower = _in_turn(
        pairs, str(against), lambda: _import(against), "this tree", lambda: _import(HERE)
    )
    return slower <= (SLOWER - 1) * there


def _in_turn(
    pairs: int, name: str, first: Callable[[], float], other: str, second: Callable[[], float]
) -> float:
    """Time both in turn, print it, and give the median of second minus first, in milliseconds."""
    timed = [_pair(first, second, swapped=bool(number % 2)) for number in range(pairs)]
    differences = [b - a for a, b in timed]
    for label, column in ((name, [a for a, _ in timed]), (other, [b for _, b in timed])):
        print(f"{label:<24} {median(column):8.2f} ms (median), {min(column):.2f} (least)")
    interval = median_interval(differences)
    ends = f"95%: {interval.low:.2f} to {interval.high:.2f}" if interval else "too few for more"
    print(f"{'difference':<24} {median(differences):8.2f} ms (median of {pairs} pairs; {ends})")
    return median(differences)


def _pair(
    first: Callable[[], float], second: Callable[[], float], *, swapped: bool
) -> tuple[float, float]:
    if not swapped:
        return first(), second()
    after = second()
    return first(), after


def _session(project: Path, *args: str) -> float:
    """Milliseconds of processor time of one pytest session, interpreter included."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=project, check=True, capture_output=True, env=_environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def _import(tree: Path) -> float:
    """Milliseconds of processor time of importing the plugin of this tree."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
        env=_environment() | {"PYTHONPATH": str(tree.resolve())},
    )
    return float(done.stdout)


def _environment() -> dict[str, str]:
    """Without what keeps bytecode from being written, which a user has not set either."""
    return {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    sys.exit(main(arguments.pairs, arguments.against))
