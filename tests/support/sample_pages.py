"""Pages with everything that a page may have, from drawn numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from gpubench_plugin.core.format import quantity
from gpubench_plugin.core.verdicts import VerdictKind
from gpubench_plugin.reports.html.chart import Chart, Series
from gpubench_plugin.reports.html.page import (
    Command,
    History,
    KnownRun,
    Link,
    Page,
    Row,
    Section,
    Table,
)
from gpubench_plugin.reports.text import escape_control
from gpubench_plugin.reports.verdicts import signed
from tests.support.hostile_texts import HOSTILE

KINDS: Sequence[VerdictKind] = (
    *("regressed", "errored", "improved", "inconclusive"),
    *("unchanged", "unchanged", "unchanged", "no_baseline"),
)
PRECISIONS = ("fp32", "amp", "bf16")
DOUBTS = ("contended", "clocks were lowered")
MODELS = ("resnet", "gpt", "unet", "moe", "bert")


def sample_page(count: int = 20, points: int = 60, *, detailed: int = 3, seed: int = 1) -> Page:
    """A comparison of `count` benchmarks with histories, of which the first are `detailed`."""
    draw = random.Random(seed)
    rows = [_row(draw, number, count, points) for number in range(count)]
    rows = [
        replace(row, sections=_details(draw, row)) if n < detailed else row
        for n, row in enumerate(rows)
    ]
    kinds = [row.kind for row in rows]
    return Page(
        title="Comparison of main with topic",
        subject="torch 2.13.0 on two NVIDIA H100 80GB, commit 3f9a2b1c0",
        facts=(
            ("started", "2026-11-27 10:12 UTC"),
            ("head", "topic, 3f9a2b1c0"),
            ("base", "main, 8d41c07aa"),
            ("device", "NVIDIA H100 80GB HBM3, driver 580.65"),
            ("benchmarks", str(count)),
        ),
        headline=tuple((k, str(kinds.count(k))) for k in dict.fromkeys(KINDS) if k in kinds),
        lead=("test_resnet[amp-0] is 12.3% slower: 18.42 ms → 20.69 ms.",) if count else (),
        sections=(
            Section(
                title="Differences of the environment",
                texts=("What differs between base and head beside the code.",),
                tables=(
                    Table(
                        title="Facts that differ",
                        columns=("fact", "base", "head"),
                        rows=(("torch.version", "2.12.0", "2.13.0"),),
                    ),
                ),
                is_open=False,
            ),
        ),
        rows=tuple(rows),
        runs=tuple(_run(n) for n in range(points)),
        across=(Section(title="Scaling", charts=(_scaling(),), tables=(_matrix(),)),),
        links=(Link("All runs", "index.html"), Link("Runs", "runs.html")),
    )


def _run(number: int) -> KnownRun:
    day, hour = divmod(number, 24)
    month, day = divmod(day, 28)
    return KnownRun(
        run_id=f"run{number:04}",
        started=f"2026-{month + 1:02}-{day + 1:02}T{hour:02}:00:00Z",
        commit=f"{number * 7919 + 0x3F9A2B1C0:09x}",
        branch="main",
    )


def _row(draw: random.Random, number: int, count: int, points: int) -> Row:
    kind = KINDS[number * len(KINDS) // count]
    model, precision = MODELS[number % len(MODELS)], PRECISIONS[number % len(PRECISIONS)]
    level = 10 ** draw.uniform(-5, 0)
    shift = {"regressed": 0.12, "improved": -0.1}.get(kind, 0.0)
    at = points * 2 // 3
    values = tuple(
        level * (1 + draw.gauss(0, 0.008)) * (1 + shift * (n >= at)) for n in range(points)
    )
    doubts = (DOUBTS[number // 4 % 2],) if number % 4 == 1 else ()
    is_measured = kind != "errored"
    name = f"test_{model}[{precision}-{number}]"
    change = shift + draw.gauss(0, 0.004)
    has_change = kind not in {"errored", "no_baseline"}
    history = History(
        metric="step_time_s",
        unit="s",
        runs=tuple(range(points)),
        values=values,
        doubts={n: DOUBTS[n % 2] for n in range(3, points, 9)},
        levels=((at, f"new level {signed(shift)}"),) if shift else (),
        band=(level * 0.985, level * 1.015),
    )
    return Row(
        id=f"benchmarks/training/test_{model}.py::{name}",
        name=name,
        outcome="measured" if is_measured else ("oom", "failed")[number % 2],
        value=f"{quantity(values[-1], 's')} ± 0.6%" if is_measured and points else "",
        number=values[-1] if is_measured and points else None,
        change=f"{signed(change)} [{signed(change - 0.01)}, {signed(change + 0.01)}]" * has_change,
        change_number=change if has_change else None,
        kind=kind,
        doubts=doubts,
        reason="" if is_measured else "CUDA out of memory: 79.1 GiB of 79.2 GiB were in use",
        facets={"precision": precision, "ranks": str(1 + number % 2), "device": "H100"},
        history=history if points else None,
    )


def _details(draw: random.Random, row: Row) -> tuple[Section, ...]:
    return (
        Section(title="Launches", charts=(_pairs(draw), _skew(draw))),
        Section(title="Rounds of the last run", charts=(_rounds(draw),)),
        Section(title="Curves", charts=(_curves(draw), _accuracy(draw), _memory(draw))),
        Section(
            title="Operators",
            tables=(
                Table(
                    title="Operators of base and head by difference",
                    columns=("operator", "base", "head", "difference"),
                    rows=(
                        ("aten::mm", "4.210 ms", "5.902 ms", "+1.692 ms"),
                        ("aten::conv2d", "3.100 ms", "3.111 ms", "+0.011 ms"),
                    ),
                    numeric=frozenset({"base", "head", "difference"}),
                ),
            ),
        ),
        Section(
            title="Repeat it",
            texts=(
                "The command that measures this benchmark again.",
                Command(f"pytest '{row.id}' \\\n  --gpubench-launches=12 --precision=amp"),
            ),
            is_open=False,
        ),
    )


def _pairs(draw: random.Random) -> Chart:
    positions, joined, base, head = [], [], [], []
    for pair in range(1, 13):
        low, high = 0.0184 * (1 + draw.gauss(0, 0.01)), 0.0207 * (1 + draw.gauss(0, 0.01))
        positions += [pair - 0.15, pair + 0.15, pair + 0.5]
        joined += [low, high, None]
        base += [low, None, None]
        head += [None, high, None]
    return Chart(
        title="step_time_s of each launch",
        unit="s",
        noun="pair",
        positions=tuple(positions),
        names=tuple(f"{side}{p}" if side else "" for p in range(1, 13) for side in ("A", "B", "")),
        series=(
            Series(label="pair", style="pairs", role="reference", values=tuple(joined)),
            Series(label="base", style="dots", role="base", values=tuple(base)),
            Series(label="head", style="dots", role="head", values=tuple(head)),
        ),
        marks=((6.5, "look after 6 pairs: inconclusive"), (12.5, "look after 12 pairs: regressed")),
    )


def _skew(draw: random.Random) -> Chart:
    medians = [1e-5 * (1 + draw.gauss(0, 0.05)) for _ in range(8)]
    return Chart(
        title="time of each rank",
        unit="s",
        noun="rank",
        positions=tuple(range(8)),
        names=tuple(f"{rank} (host{rank // 4})" for rank in range(8)),
        series=(
            Series(
                label="median, 5th to 95th percentile",
                style="dots",
                values=tuple(medians),
                low=tuple(value * 0.97 for value in medians),
                high=tuple(value * 1.04 for value in medians),
            ),
        ),
    )


def _rounds(draw: random.Random) -> Chart:
    count = 200
    return Chart(
        title="time of each round",
        unit="s",
        noun="round",
        positions=tuple(range(1, count + 1)),
        series=(
            Series(
                label="95% interval of the median",
                style="band",
                role="reference",
                low=(0.02060,) * count,
                high=(0.02072,) * count,
            ),
            Series(label="median", role="reference", values=(0.02066,) * count),
            Series(
                label="round",
                style="dots",
                values=tuple(0.02066 * (1 + abs(draw.gauss(0, 0.004))) for _ in range(count)),
            ),
        ),
    )


def _curves(draw: random.Random) -> Chart:
    steps = range(0, 500, 5)
    roles: tuple[Literal["base", "head"], ...] = ("base", "head")
    sides = {
        role: tuple(2.3 / (1 + step / 60) + draw.gauss(0, 0.03) for step in steps) for role in roles
    }
    return Chart(
        title="loss",
        unit="",
        noun="step",
        positions=tuple(steps),
        series=tuple(Series(label=role, role=role, values=v) for role, v in sides.items()),
    )


def _accuracy(draw: random.Random) -> Chart:
    return Chart(
        title="accuracy of each epoch",
        unit="fraction",
        noun="epoch",
        positions=tuple(range(1, 11)),
        series=(
            Series(
                label="head",
                values=tuple(1 - 0.8 / epoch + draw.gauss(0, 0.01) for epoch in range(1, 11)),
                low=tuple(1 - 0.8 / epoch - 0.05 for epoch in range(1, 11)),
                high=tuple(1 - 0.8 / epoch + 0.05 for epoch in range(1, 11)),
            ),
        ),
    )


def _memory(draw: random.Random) -> Chart:
    return Chart(
        title="memory of each step",
        unit="bytes",
        noun="step",
        positions=tuple(range(40)),
        series=(
            Series(label="allocated", values=tuple(draw.uniform(2e9, 4e9) for _ in range(40))),
            Series(
                label="in doubt: contended",
                style="dots",
                role="doubt",
                values=tuple(3e9 if n % 10 == 4 else None for n in range(40)),
            ),
        ),
    )


def _scaling() -> Chart:
    ranks = (1, 2, 4, 8)
    rates = (1200.0, 2300.0, 4450.0, 8300.0)
    return Chart(
        title="test_resnet[amp]: samples_per_s",
        unit="samples/s",
        noun="ranks",
        positions=ranks,
        series=(
            Series(label="ideal", role="reference", values=tuple(1200.0 * n for n in ranks)),
            Series(
                label="measured",
                values=rates,
                low=tuple(rate * 0.97 for rate in rates),
                high=tuple(rate * 1.03 for rate in rates),
            ),
        ),
    )


def _matrix() -> Table:
    return Table(
        title="by precision",
        columns=("benchmark", *PRECISIONS),
        rows=(("test_resnet", "24.10 ms", "18.42 ms (1.31x)", "18.01 ms (1.34x)"),),
        numeric=frozenset(PRECISIONS),
    )


def hostile_page(texts: Sequence[str] = HOSTILE) -> Page:
    """A page that has each of the `texts` wherever a text may stand."""
    sections = tuple(
        Section(
            title=text,
            texts=(text, Command(text)),
            tables=(
                Table(title=text, columns=(text, "x"), rows=((text, Link(text, f"a#{text}")),)),
            ),
            is_open=False,
        )
        for text in texts
    )
    charts = tuple(
        Chart(
            title=text,
            unit=text,
            noun=text,
            positions=(1, 2),
            names=(text, text),
            series=(Series(label=text, values=(1.0, 2.0)),),
            marks=((1, text),),
        )
        for text in texts
    )
    rows = tuple(
        Row(
            id=text,
            name=text,
            outcome="measured",
            value=text,
            change=text,
            kind="inconclusive",
            doubts=(text,),
            reason=text,
            facets=dict(zip(texts, (text, *texts[1:]), strict=True)),
            history=History(
                metric=text,
                unit=text,
                runs=(0, 1),
                values=(1.0, 2.0),
                doubts={0: text},
                levels=((1, text),),
            ),
            sections=sections[number : number + 1],
        )
        for number, text in enumerate(texts)
    )
    return Page(
        title=texts[0],
        subject=texts[1],
        facts=tuple((text, text) for text in texts),
        headline=(("regressed", texts[2]),),
        lead=tuple(texts),
        sections=sections,
        rows=rows,
        runs=tuple(
            KnownRun(run_id=text, started=text, commit=text, branch=text) for text in texts[:2]
        ),
        across=(Section(title="Across", charts=charts),),
        links=tuple(Link(text, text) for text in texts),
    )


def shown(text: str) -> str:
    """What a page shows of `text`."""
    return "".join(c if c in "\n\t" else escape_control(c) for c in text)
