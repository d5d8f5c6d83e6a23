"""Every writer of results, killed at every point: how many kills, in how many different states.

    python tools/evidence/kill_points.py [NAME…]

The default tests leave statements of databases out, this does not. A
database on a server is tested by ``tests/unit/results/registry/test_kill_points.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.kill_points import survive
from tests.support.scenarios import SCENARIOS


def main() -> None:
    """Print a line for each scenario; what does not survive ends it with a traceback."""
    known = {scenario.__name__: scenario for scenario in SCENARIOS}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(known)}")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    for name in options.names or known:
        began = time.monotonic()
        with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            survival = survive(known[name](), Path(folder))
        took = time.monotonic() - began
        counts = f"{survival.kills:5} kills {survival.states:5} states"
        sys.stdout.write(f"{name:12} {counts} {took:7.1f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
