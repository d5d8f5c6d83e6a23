"""Runs the fault matrix of the gangs again and again, and says of each run whether it was clean.

    python docs/fault_matrix.py [RUNS]

A run is clean if every fault got its verdict, named its ranks and showed their stacks, the other
benchmarks were measured, and no process or file was left. Of an unclean run the differences are
printed. The exit code is 1 if any run was unclean.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
MATRIX = "tests/acceptance/test_gang_faults.py"
RUNS = 20


def main(runs: int) -> int:
    """Run the matrix that many times; the number of unclean runs, at most one."""
    unclean = 0
    for number in range(1, runs + 1):
        start = monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", MATRIX],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        said = "clean" if done.returncode == 0 else f"UNCLEAN\n{done.stdout}{done.stderr}"
        unclean += done.returncode != 0
        print(f"run {number} of {runs}, {monotonic() - start:.0f} s: {said}", flush=True)
    print(f"{runs - unclean} of {runs} clean")
    return min(unclean, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
