"""The numbers of docs/evidence/gpu.md, from a run of ``tox -e gpu``.

``python tools/generate/gpu.py [FOLDER]`` takes the runs and the reports of pytest (``*.xml``) in
the folder, ``results/gpu`` by default, and rewrites the page's part about their device; those about
others stay. Exit code 1 if a test failed, a bound is broken, or the folder has neither.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import yaml

from gpubench_plugin.config.limits import Limit
from gpubench_plugin.core.format import quantity, significant
from gpubench_plugin.reports.github import code, prose

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "evidence" / "gpu.md"
FIGURES: Final = ROOT / "tests" / "gpu" / "figures.yaml"
RATES: Final = ("tokens_per_s", "samples_per_s", "tflops", "bytes_per_s")
"""In the order of preference."""
COUNTED: Final = ("samples/s", "tokens/s")

Json = Mapping[str, Any]


def section(runs: Sequence[Json], cases: Sequence[tuple[str, str, str]], figures: Json) -> str:
    """The part of the page: tests, bounds, numbers beside published ones, and what is open.

    `runs` are summaries, oldest first; `cases` are tests, each with its outcome and a reason.
    """
    benchmarks = latest(runs)
    device = ", ".join(sorted({*runs[-1]["environment"]["devices"].values()}))
    not_shown = [*_open(benchmarks, cases, device, figures["goals"])]
    parts = (
        [f"## What a run on an {prose(device)} says"],
        [_head(runs)],
        _tests(cases),
        _bounds(benchmarks),
        _numbers(benchmarks),
        _published(benchmarks, figures["published"]),
        ["Not shown by this run:", "", *not_shown] if not_shown else [],
    )
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if lines) + "\n"


def latest(runs: Sequence[Json]) -> Sequence[Json]:
    """Each benchmark as the last of the runs has it."""
    return [*{b["id"]: b for run in runs for b in run["benchmarks"]}.values()]


def replaced(page: str, section: str) -> str:
    """The page with that section instead of the one with the same heading, or as its first."""
    head, *others = page.split("\n## ")
    title = section.removeprefix("## ").partition("\n")[0]
    kept = [other for other in others if other.partition("\n")[0] != title]
    return "\n## ".join([head, section.removeprefix("## "), *kept])


def _head(runs: Sequence[Json]) -> str:
    facts = runs[-1]["environment"]
    known = {
        "driver": (facts["gpu"] or {}).get("driver"),
        "CUDA": facts["torch"]["cuda"],
        "NCCL": facts["torch"]["nccl"],
        **facts["packages"],
    }
    versions = ", ".join(f"{name} {version}" for name, version in known.items() if version)
    return prose(f"{runs[0]['started']} to {runs[-1]['finished']}: {versions}")


def _tests(cases: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    counts = Counter(outcome for _, outcome, _ in cases)
    if cases:
        yield f"Tests: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}."
    yield from (f"- {code(name)} **failed**" for name, outcome, _ in cases if outcome == "failed")


def _bounds(benchmarks: Iterable[Json]) -> Iterator[str]:
    yield from _head_of_table("benchmark", "metric", "value", "bound", "kept")
    for benchmark in benchmarks:
        for name, limit, metric in fixed_bounds(benchmark):
            kept = "yes" if is_kept(limit, metric) else "**no**"
            value = _value(benchmark, name) or "unknown"
            yield _row(code(benchmark["name"]), name, value, code(limit.text), kept)


def fixed_bounds(benchmark: Json) -> Iterator[tuple[str, Limit, Json | None]]:
    """The fixed bounds of a benchmark that had to be measured: metric, bound, and the number."""
    if benchmark["outcome"] in {"skipped", "unsupported"}:
        return
    for name, text in benchmark["limits"].items():
        limit = Limit.parse(text, name)
        if limit.kind != "relative":
            yield name, limit, benchmark["metrics"].get(name)


def is_kept(limit: Limit, metric: Json | None) -> bool:
    """Whether the number is known, and within its fixed bound."""
    if metric is None:
        return False
    value: float = metric["value"]
    return value <= limit.bound if limit.kind == "at_most" else value >= limit.bound


def _numbers(benchmarks: Iterable[Json]) -> Iterator[str]:
    titles = ("step", "interval", "rate", "MFU", "peak memory", "loop by hand", "flags")
    yield from _head_of_table("benchmark", *titles)
    for benchmark in benchmarks:
        if benchmark["outcome"] != "measured":
            yield _row(code(benchmark["name"]), f"**{benchmark['outcome']}**", *[""] * 6)
            continue
        bounds = [_value(benchmark, f"step_time_ci_{end}_s") for end in ("low", "high")]
        yield _row(
            code(benchmark["name"]),
            _value(benchmark, "step_time_s"),
            " to ".join(filter(None, bounds)),
            _rate(benchmark),
            *(_value(benchmark, name) for name in ("mfu", "peak_memory_bytes", "hand_loop_s")),
            ", ".join(benchmark["flags"]),
        )


def _value(benchmark: Json, name: str) -> str:
    if name not in benchmark["metrics"]:
        return ""
    value, unit = (benchmark["metrics"][name][key] for key in ("value", "unit"))
    # As published figures have it: 3150 samples/s.
    return f"{significant(value, 4)} {unit}" if unit in COUNTED else quantity(value, unit)


def _rate(benchmark: Json) -> str:
    return next(filter(None, (_value(benchmark, rate) for rate in RATES)), "")


def _published(benchmarks: Iterable[Json], figures: Mapping[str, Sequence[Json]]) -> Iterator[str]:
    """Published figures beside those that were measured; the hardware need not be the same."""
    yield from _head_of_table(
        *("benchmark", "measured", "published", "on", "settings", "date", "source")
    )
    for benchmark in benchmarks:
        test = benchmark["name"].partition("[")[0]
        for figure in figures.get(f"{test} {benchmark['params'].get('precision')}", ()):
            published = f"{figure['value']} {figure['unit']}"
            facts = (str(figure[key]) for key in ("device", "settings", "date", "source"))
            yield _row(code(benchmark["name"]), _rate(benchmark), published, *facts)


def _open(
    benchmarks: Sequence[Json], cases: Sequence[tuple[str, str, str]], device: str, goals: Json
) -> Iterator[str]:
    yield from (f"- goals of {prose(other)}" for other in goals if other != device)
    names = {benchmark["name"] for benchmark in benchmarks}
    yield from (f"- goals of {code(name)}" for name in goals.get(device, {}) if name not in names)
    for benchmark in benchmarks:
        if benchmark["outcome"] != "measured":
            yield f"- {code(benchmark['name'])}: {prose(benchmark['reason'])}"
    for name, outcome, reason in cases:
        if outcome == "skipped":
            yield f"- {code(name)}: {prose(reason)}"


def _head_of_table(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield _row(*["---"] * len(titles))


def _row(*cells: str) -> str:
    texts = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(texts)} |"


def cases_of(reports: Iterable[Path]) -> Sequence[tuple[str, str, str]]:
    """Tests of pytest's reports as they ended last: name, outcome and reason of each."""
    suites = [suite for file in reports for suite in ElementTree.parse(file).iter("testsuite")]
    suites.sort(key=lambda suite: suite.get("timestamp", ""))
    cases = {
        f"{case.get('classname')}::{case.get('name')}": _outcome(case)
        for suite in suites
        for case in suite.iter("testcase")
        if case.get("name")  # an interrupted session ends with one that has none
    }
    return [(name, *outcome) for name, outcome in cases.items()]


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    skip = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed", ""
    return ("passed", "") if skip is None else ("skipped", skip.get("message", ""))


def main(arguments: Sequence[str]) -> int:
    """Rewrite the page from the folder; return the exit code."""
    folder = Path(arguments[0] if arguments else ROOT / "results" / "gpu")
    summaries = sorted(folder.glob("*/summary.json"))
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in summaries]
    cases = cases_of(sorted(folder.glob("*.xml")))
    if not runs or not cases:
        print(f"{folder}: no runs, or no reports of pytest (*.xml): tox -e gpu writes both")
        return 1
    figures = yaml.safe_load(FIGURES.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(page, section(runs, cases, figures)), encoding="utf-8")
    failed = [name for name, outcome, _ in cases if outcome == "failed"]
    failed += [
        f"{benchmark['name']}: {name}"
        for benchmark in latest(runs)
        for name, limit, metric in fixed_bounds(benchmark)
        if not is_kept(limit, metric)
    ]
    print("\n".join(f"failed: {name}" for name in failed) or f"{PAGE} is written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
