"""How many tests per second one gang runs, beside one launch of torchrun per test, in one run.

    python tools/evidence/gang_throughput.py

Fifty tests of two ranks meet at a barrier and measure nothing. The gang's rate counts from the end
of the first test, when the ranks have started and joined, to the end of the last. The other rate is
that of whole launches, of which a few are enough to tell.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

TESTS = 50
LAUNCHES = 3
TEST = f"""
import pytest

@pytest.mark.gpubench(ranks=2)
@pytest.mark.parametrize("number", range({TESTS}))
def test_meet(process_group, number):
    process_group.agreement.barrier()
"""
CONFTEST = """
import os, time

def pytest_runtest_logfinish():
    if "RANK" not in os.environ:
        with open("ends", "a") as ends:
            print(time.monotonic(), file=ends)
"""
PYTEST = ("pytest", "-q", "-p", "no:cacheprovider")
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m")


def run(folder: Path, *module: str) -> float:
    """Run a module in `folder`; the seconds it took."""
    start = monotonic()
    subprocess.run(
        [sys.executable, "-m", *module], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return monotonic() - start


def main() -> None:
    """Run both ways and print the two rates."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_meet.py").write_text(TEST)
        (folder / "conftest.py").write_text(CONFTEST)
        whole = run(folder, *PYTEST)
        ends = [float(line) for line in (folder / "ends").read_text().split()]
        gang = (TESTS - 1) / (ends[-1] - ends[0])
        launches = [
            run(folder, *TORCHRUN, *PYTEST, f"test_meet.py::test_meet[{number}-ranks2]")
            for number in range(LAUNCHES)
        ]
    torchrun = LAUNCHES / sum(launches)
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    print(f"one gang            {gang:8.2f} tests/s  ({TESTS} tests; {whole:.1f} s with start-up)")
    print(f"torchrun per test   {torchrun:8.2f} tests/s  ({LAUNCHES} launches)")
    print(f"ratio               {gang / torchrun:8.0f}")


if __name__ == "__main__":
    main()
