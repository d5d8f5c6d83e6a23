"""Runs the fault matrix of the gangs again and again, and says of each run whether it was clean.

    python tools/evidence/fault_matrix.py [RUNS]

A run is clean if every fault got its verdict, named its ranks and showed their stacks, the other
benchmarks were measured, and no process or file was left. How long ranks outlived a controller that
was killed is printed, and of an unclean run what was wrong. The exit code is 1 if any was unclean.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[2]
MATRIX = "tests/e2e/test_gang_faults.py"
RUNS = 20


def main(runs: int) -> int:
    """Run the matrix that many times; the number of unclean runs, at most one."""
    unclean = 0
    for number in range(1, runs + 1):
        start = monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", MATRIX],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        unclean += done.returncode != 0
        gone = [line for line in done.stdout.splitlines() if line.startswith("ranks gone")]
        said = ["UNCLEAN", done.stdout, done.stderr] if done.returncode else ["clean", *gone]
        print(f"run {number} of {runs}, {monotonic() - start:.0f} s: {', '.join(said)}", flush=True)
    print(f"{runs - unclean} of {runs} clean")
    return min(unclean, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
