"""Measure this folder's benchmarks, and say what came of each.

``python nightly.py attention and fp32`` selects by what pytest's ``-k`` takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gpubench_plugin

HERE = Path(__file__).parent


def main() -> int:
    """Exit code 1 if a benchmark went wrong, 2 if nothing could run."""
    try:
        run = gpubench_plugin.run(
            ".",
            cwd=HERE,
            keyword=" ".join(sys.argv[1:]),
            precision=["fp32", "bf16"],
            keys={"measure.profile": "quick"},
            tag="nightly",
            quiet=True,
        )
    except gpubench_plugin.UsageProblem as problem:
        print(problem, file=sys.stderr)
        return 2
    print(f"{run.run_id}: {run.status}")
    print(run.table())  # as pytest's: a number in doubt has a mark, and the doubt beside it
    return 0 if run.status == "complete" else 1


if __name__ == "__main__":
    sys.exit(main())
