"""Compares what two runs of the same suite wrote, less what time and noise make of it.

    python tools/evidence/same_records.py RUN OTHER

Both are run directories. Compared are the benchmarks with their outcomes and reasons, and in
``summary.json``, ``benchmark.json``, the journal and ``summary.csv`` all keys and every value but
those of the `NOISY` keys. Exit code 1 if something differs.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

NOISY: Final = re.compile(
    r".*_(s|ns|per_s|fraction)|peak_memory_bytes|.*memory.*_bytes|time|datetime|tflops|mfu"
    r"|warmup_(calls|iterations)|rounds|iterations|durations|block_.*|flags|load.*|hz_.*"
    r"|min|max|mean|median|stddev|iqr|q1|q3|ops|total|data|ld15iqr|hd15iqr|outliers|.*_outliers"
    r"|phase_.*_share|speedup_over_eager|slowest_rank|bytes_read|run_id|command|path|pid|digest"
    r"|effective_rounds|count|doubts|notes|(durations|calls)_per_(round|duration)"
)
"""Keys whose values follow the clock (times, their ratios, the length of their digits in messages),
the scheduler, the allocator or the checkout."""

OF_THE_CHECKOUT: Final = frozenset(
    {"code", "commit_info", "files", "finished", "git", "project", "started"}
)
"""Keys of the code that ran, and of when and where it did."""


def main(run: Path, other: Path) -> int:
    """Print what differs, and fail where something does."""
    differences: Counter[str] = Counter()
    for name, read in FILES.items():
        values, others = (Counter(read(folder / name)) for folder in (run, other))
        for (key, value), count in (values - others).items():
            differences[f"{name}: {key} = {value!r:.60}, in {run} only"] += count
        for (key, value), count in (others - values).items():
            differences[f"{name}: {key} = {value!r:.60}, in {other} only"] += count
        print(f"{name}: {values.total()} values compared")
    for difference, count in sorted(differences.items()):
        print(f"{count:5} x {difference}")
    return 1 if differences else 0


def of_json(file: Path) -> Iterator[tuple[str, str]]:
    """Every key of the document, with its value unless it is noise."""
    return leaves(json.loads(file.read_text(encoding="utf-8")))


def of_journal(file: Path) -> Iterator[tuple[str, str]]:
    """The same of every line."""
    for line in file.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "progress":  # as many as there was time for
            continue
        yield from leaves(event, event["event"])


def of_table(file: Path) -> Iterator[tuple[str, str]]:
    """The same of every row."""
    with file.open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            yield from leaves(dict(row))


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Keys as paths; members of a list have no number, and noise has no value.

    64 and 64.0 are one number in JSON.
    """
    last = key.rpartition("/")[2]
    if isinstance(value, dict) and last not in OF_THE_CHECKOUT:
        for name, one in value.items():
            yield from leaves(one, f"{key}/{name}")
    elif NOISY.fullmatch(last) or last in OF_THE_CHECKOUT:
        yield key, "(noise)"
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one, key)
    elif not metric_of_noise(key):
        yield key, repr(float(value) if type(value) is int else value)


def metric_of_noise(key: str) -> bool:
    """Whether the key is the value of a metric that is one of time: its name stands above it."""
    above, _, last = key.rpartition("/")
    return last == "value" and NOISY.fullmatch(above.rpartition("/")[2]) is not None


FILES: Final = {
    "summary.json": of_json,
    "benchmark.json": of_json,
    "metrics.jsonl": of_journal,
    "summary.csv": of_table,
}

if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
