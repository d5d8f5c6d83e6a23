"""``gpubench compare`` beside busy processes, on code whose truth is known.

    python tools/evidence/busy_machine.py [--pairs 20] [--busy 6]

Writes docs/evidence/busy_machine.md. A project of three benchmarks is measured in pairs of runs,
one before and one after a change that makes one of them 20% slower, while other processes compute.
The exit code is 1 if a verdict has a wrong sign, or if less than three quarters of the slowdowns
whose minima are clean are found. Twenty pairs take about 40 minutes on two processors.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.evidence.pages import busy_processes, markdown, save

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAIN: Final = "import sys; from gpubench_plugin.cli.main import main; sys.exit(main())"
SUITE: Final = '''"""Three functions of less than a millisecond."""

import numpy as np

TIMES = 100
values = np.random.default_rng(0).standard_normal(4_000)
result = np.empty(3_999)
words = [str(number) for number in range(4_000)]


def rolling_max():
    for _ in range(TIMES):
        np.maximum(values[1:], values[:-1], out=result)


def normalised():
    for _ in range(100):
        np.multiply(values[1:], 0.5, out=result)


def joined():
    return ",".join(sorted(words))


def test_rolling_max(gpubench):
    gpubench(rolling_max)


def test_normalised(gpubench):
    gpubench(normalised)


def test_joined(gpubench):
    gpubench(joined)
'''
SLOWER: Final = "test_rolling_max"
EFFECTS: Final = {"20% slower": 0.2, "unchanged": 0.0}
METHODS: Final = ("by the values", "`compare`", "the gate")
PINS: Final = 10
WRONG: Final = {"20% slower": {"improved"}, "unchanged": {"improved", "regressed"}}
KINDS: Final = ("regressed", "improved", "unchanged", "inconclusive")
CLEAN: Final = 0.05
FOUND: Final = 0.75
INTRODUCTION: Final = """# `gpubench compare` beside busy processes

Written by `python tools/evidence/busy_machine.py`: {pairs} pairs of runs of three functions of
less than a millisecond, with `--measure.profile=quick`, beside {busy} processes that compute on
{processors} processors. The head of `rolling_max` is 20% slower, the others are unchanged. *By the
values*: what the limits alone say, as with `--allow-doubt`. *The gate*: from pair {pins} on,
both runs are sessions with `--baseline --gate`, judged by the bases of the pairs before.
"""
CONCLUSION: Final = """
Wrong signs: {tally[wrong]}, of which {tally[wrong_but_clean]} where the minima were right within
5%. Minima that are further off come from phases of minutes in which all is slower, 1.3 to 1.9 times
as seen: no flag shows them, only pairs see through them. Slowdowns whose minima were right:
{tally[clean]}, of which {tally[found]} were found. A number in doubt: {tally[doubted]} of
{step_times} step times.
"""


def measured(folder: Path, *more: str, head: bool) -> str:
    """Id of a new run of the project, before or after the change, with `more` options."""
    suite = SUITE.replace("TIMES = 100", "TIMES = 120") if head else SUITE
    (folder / "test_steps.py").write_text(suite)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-q'\n")
    options = ("--measure.profile=quick", "--results-dir=results", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, *more]
    subprocess.run(command, cwd=folder, check=not more, stdout=subprocess.DEVNULL)
    return max(path.parent.name for path in (folder / "results").glob("*/*/summary.json"))


def pin(folder: Path, runs: Sequence[str]) -> tuple[str, ...]:
    """Pin the runs; options of a session that is judged by them."""
    command = [sys.executable, "-c", MAIN, "baseline", "set", "main", *runs]
    command += ["--force", "--reason=noise"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return "--baseline=main", "--gate"


def gated(folder: Path, run: str) -> Sequence[Mapping[str, Any]]:
    """Verdicts of a session with a gate on step times; none of one without."""
    files = folder.glob(f"results/*/{run}/verdicts.json")
    rows = [row for file in files for row in json.loads(file.read_text())["benchmarks"]]
    return [row for row in rows if row["metric"].startswith("step_time")]


def verdicts(folder: Path, base: str, head: str, *options: str) -> Sequence[Mapping[str, Any]]:
    """Verdicts of the comparison on step times."""
    command = [sys.executable, "-c", MAIN, "compare", base, head, "--format=json", *options]
    done = subprocess.run(command, cwd=folder, check=False, stdout=subprocess.PIPE, text=True)
    rows = json.loads(done.stdout)["benchmarks"]
    return [row for row in rows if row["metric"].startswith(("step_time", "samples"))]


def is_clean(row: Mapping[str, Any], effect: float) -> bool:
    """Whether the minima are as far apart as they should be, within 5%."""
    parts = (part for part in row["parts"] if part["metric"] == "step_time_min_s")
    return any(abs(part["effect"] - effect) < CLEAN for part in parts)


def main() -> None:
    """Measure, compare, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=6)
    options = parser.parse_args()
    counts = {(truth, method): Counter[str]() for truth in EFFECTS for method in METHODS}
    bases, gate = list[str](), tuple[str, ...]()
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, busy_processes(options.busy):
        folder = Path(name)
        for pair in range(options.pairs):
            gate = pin(folder, bases) if pair == PINS else gate
            base, head = measured(folder, *gate, head=False), measured(folder, *gate, head=True)
            bases.append(base)
            for run in (base, head):
                for row in gated(folder, run):
                    is_slower = run == head and SLOWER in row["id"]
                    truth = "20% slower" if is_slower else "unchanged"
                    counts[truth, "the gate"][row["verdict"]] += 1
            for method, flags in zip(METHODS, (("--allow-doubt",), ()), strict=False):
                for row in verdicts(folder, base, head, *flags):
                    truth = "20% slower" if SLOWER in row["id"] else "unchanged"
                    counts[truth, method][row["verdict"]] += 1
                    if flags:
                        continue
                    clean = is_clean(row, EFFECTS[truth])
                    wrong = row["verdict"] in WRONG[truth]
                    tally["doubted"] += any(part["doubts"] for part in row["parts"])
                    tally["wrong"] += wrong
                    tally["wrong_but_clean"] += wrong and clean
                    if clean and truth == "20% slower":
                        tally["clean"] += 1
                        tally["found"] += row["verdict"] == "regressed"
            sys.stderr.write(f"pair {pair + 1} of {options.pairs}\n")
    rows = [
        (f"{truth}, {method}", *(str(counted[kind]) for kind in KINDS))
        for (truth, method), counted in counts.items()
    ]
    save(
        "busy_machine.md",
        INTRODUCTION.format(
            pairs=options.pairs, busy=options.busy, processors=os.cpu_count(), pins=PINS + 1
        ),
        markdown(("", *KINDS), rows),
        CONCLUSION.format(tally=tally, step_times=3 * options.pairs),
    )
    sys.exit(1 if tally["wrong"] or tally["found"] < FOUND * tally["clean"] else 0)


if __name__ == "__main__":
    main()
