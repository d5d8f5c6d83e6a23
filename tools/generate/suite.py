"""The whole suite on a CPU: run it, check that enough was measured, write its page.

``python tools/generate/suite.py`` runs every benchmark with preset tiny on one and on two ranks in
fp32 and bf16, prints how long that took and what is missing of ``tools/generate/suite.yaml``, and
rewrites the table of docs/evidence/suite.md. ``python tools/generate/suite.py RUN`` checks and
writes a run that is there. Exit code 1 if something is missing.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final

import yaml

import gpubench_plugin
from gpubench_plugin.core.records import Measurement, RunRecord
from gpubench_plugin.reports.names import without_parameter

ROOT: Final = Path(__file__).parents[2]
LIST: Final = ROOT / "tools" / "generate" / "suite.yaml"
TABLE: Final = ROOT / "docs" / "evidence" / "suite.md"
PRECISIONS: Final = ("fp32", "bf16")
WORLD_SIZES: Final = (1, 2)
COMMAND: Final = (
    "pytest benchmarks --preset=tiny --device=cpu --precision=fp32,bf16 --world-size=1,2"
)


def missing(
    benchmarks: Sequence[Measurement], wanted: Mapping[str, Any], *, seconds: float
) -> list[str]:
    """What is wrong with a run of `benchmarks` that took so many `seconds`, a sentence each.

    `wanted` has names of benchmarks by group under ``measured_in_fp32_and_bf16``, a test function
    each or the beginning of its parameters too, and the least number of measured benchmarks under
    ``least_measured``, and the longest time under ``most_seconds``.
    """
    measured = [b for b in benchmarks if b.outcome == "measured"]
    said = [
        f"{group}: {name} was not measured in {precision}"
        for group, names in wanted["measured_in_fp32_and_bf16"].items()
        for name in names
        for precision in PRECISIONS
        if not any(b.params.get("precision") == precision and _is(b, name) for b in measured)
    ]
    if len(measured) < wanted["least_measured"]:
        said.append(f"{len(measured)} measured; at least {wanted['least_measured']} must be")
    if seconds > wanted["most_seconds"]:
        said.append(f"it took {seconds:.0f} s; at most {wanted['most_seconds']} are allowed")
    bad = Counter(b.outcome for b in benchmarks) - Counter(
        {outcome: len(benchmarks) for outcome in ("measured", "skipped", "unsupported")}
    )
    said += [f"{count} {outcome}" for outcome, count in bad.items()]
    said += [f"{b.id}: {b.outcome} without a reason" for b in benchmarks if not _explained(b)]
    return said


def _is(benchmark: Measurement, name: str) -> bool:
    """Whether it is the benchmark of that `name`, in whatever precision and on how many ranks."""
    own = benchmark.name.replace("]", "-")
    return own.startswith(f"{name}-" if "[" in name else f"{name}[")


def _explained(benchmark: Measurement) -> bool:
    return benchmark.outcome == "measured" or bool(benchmark.reason)


def document(record: RunRecord, wanted: Mapping[str, Any]) -> str:
    """The page: how the suite was run, what came of it, and a row for each case."""
    outcomes = Counter(benchmark.outcome for benchmark in record.benchmarks)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    names = sum(map(len, wanted["measured_in_fp32_and_bf16"].values()))
    return "\n".join(
        [
            "# The suite",
            "",
            "Written by `python tools/generate/suite.py`, which runs",
            "",
            f"```\n{COMMAND}\n```",
            "",
            f"and fails if one of the {names} benchmarks in `tools/generate/suite.yaml` was not",
            "measured in fp32 and in bf16, if any went wrong, or if fewer than",
            f"{wanted['least_measured']} were measured. What is skipped says why.",
            "",
            f"On {_machine(record)}, without a GPU: {counts}, in {_seconds(record):.0f} s.",
            "",
            "A cell holds the median step time, or the outcome if nothing was measured, with its",
            "reason below the table. Benchmarks that use no precision are listed under fp32.",
            "",
            *_table(record.benchmarks),
            "",
        ]
    )


def _machine(record: RunRecord) -> str:
    facts = record.environment
    return f"{facts['cpu']['usable_cores']} cores of {facts['device']['model']}"


def _seconds(record: RunRecord) -> float:
    began, ended = (datetime.fromisoformat(time) for time in (record.started, record.finished))
    return (ended - began).total_seconds()


def _table(benchmarks: Iterable[Measurement]) -> Iterator[str]:
    columns = [(precision, ranks) for ranks in WORLD_SIZES for precision in PRECISIONS]
    rows: dict[tuple[str, str], dict[tuple[str, int], Measurement]] = {}
    for benchmark in benchmarks:
        case = (benchmark.id.partition("::")[0], _case(benchmark))
        column = (benchmark.params.get("precision", PRECISIONS[0]), benchmark.world_size)
        rows.setdefault(case, {})[column] = benchmark
    reasons: dict[str, int] = {}
    heads = [f"{precision}, {ranks} rank{'s' * (ranks > 1)}" for precision, ranks in columns]
    file = ""
    for (path, name), cells in rows.items():
        if path != file:
            file = path
            yield from ("", f"## {path.removeprefix('benchmarks/')}", "")
            yield f"| benchmark | {' | '.join(heads)} |"
            yield f"| --- |{' ---: |' * len(columns)}"
        shown = [_cell(cells.get(column), reasons) for column in columns]
        yield f"| `{name}` | {' | '.join(shown)} |"
    yield from ("", "## Reasons", "")
    # No tags: a page of Markdown drops them.
    yield from (f"{number}. {reason.replace('<', '&lt;')}" for reason, number in reasons.items())


def _case(benchmark: Measurement) -> str:
    """The name without precision and world size, which its column says."""
    shown = (benchmark.params.get("precision", ""), f"ranks{benchmark.world_size}")
    return reduce(without_parameter, filter(None, shown), benchmark.name)


def _cell(benchmark: Measurement | None, reasons: dict[str, int]) -> str:
    if benchmark is None:
        return ""
    if benchmark.outcome == "measured":
        return _shown(benchmark.metrics["step_time_s"].value)
    number = reasons.setdefault(benchmark.reason, len(reasons) + 1)
    return f"{benchmark.outcome} ({number})"


def _shown(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 if something is missing."""
    if arguments:
        record = gpubench_plugin.load_run(arguments[0])
    else:
        record = gpubench_plugin.run(
            "benchmarks",
            cwd=ROOT,
            preset="tiny",
            device="cpu",
            precision=PRECISIONS,
            world_size=WORLD_SIZES,
            experiment="suite",
        )
    wanted = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    TABLE.write_text(document(record, wanted), encoding="utf-8")
    found = missing(record.benchmarks, wanted, seconds=_seconds(record))
    print(f"{len(record.benchmarks)} benchmarks in {_seconds(record):.0f} s")
    print("\n".join(found) or "nothing is missing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
