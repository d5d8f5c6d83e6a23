"""What the installed plugin costs a project that does not use it.

Runs pytest on a project with one ordinary test, with the plugin and with ``-p no:gpubench``, in
turn, and prints the medians and the median of the paired differences. Exit code 1 above the budget.

    python tools/evidence/import_cost.py [pairs]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

BUDGET_MS = 10.0


def main(pairs: int) -> int:
    """Print the table; 1 if the plugin costs more than the budget."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "pytest.ini").write_text("[pytest]\n")
        (project / "test_it.py").write_text("def test_x():\n    pass\n")
        _session(project)  # compiles bytecode
        _session(project, "-p", "no:gpubench")
        timed = [_pair(project, with_it_first=bool(number % 2)) for number in range(pairs)]
    added = median(with_it - without for with_it, without in timed)
    print(f"pairs of sessions        {pairs}")
    print(f"with the plugin          {median(a for a, _ in timed):8.1f} ms (median)")
    print(f"with -p no:gpubench      {median(b for _, b in timed):8.1f} ms (median)")
    print(f"added (median of pairs)  {added:8.1f} ms; budget {BUDGET_MS:g} ms")
    return int(added > BUDGET_MS)


def _pair(project: Path, *, with_it_first: bool) -> tuple[float, float]:
    """One session with the plugin and one without it, in either order."""
    if with_it_first:
        return _session(project), _session(project, "-p", "no:gpubench")
    without = _session(project, "-p", "no:gpubench")
    return _session(project), without


def _session(project: Path, *args: str) -> float:
    """Milliseconds of one pytest session, interpreter included."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    began = time.perf_counter()
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
