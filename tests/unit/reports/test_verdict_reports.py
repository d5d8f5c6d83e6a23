"""Tests of how verdicts are shown: headline, table, formats, and what GitHub gets."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpubench_plugin.core.catalog import choices, load
from gpubench_plugin.core.verdicts import (
    VERDICT_KINDS,
    Comparison,
    FactDifference,
    Verdict,
    VerdictKind,
    VerdictPart,
)
from gpubench_plugin.reports import github
from gpubench_plugin.reports import text as cells
from gpubench_plugin.reports.formats.base import Page
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.verdict_table import verdict_lines
from gpubench_plugin.reports.verdicts import headline, mark, number, signed, worst_first
from gpubench_plugin.results import verdicts as verdict_document
from gpubench_plugin.system import stored
from tests.support.messages import mentions
from tests.support.schemas import DESCRIBES
from tests.support.screens import in_ascii

PUBLISHED = Path(verdict_document.__file__).parents[2] / "docs" / "schemas" / "verdicts.schema.json"
EVIL = "test_x.py::test_<b>|`$(rm)`\\|@you #1 http://a [x](y) \x1b[31m\n=1\ud800"


def verdict(
    name: str = "test_a",
    kind: VerdictKind = "regressed",
    effect: float | None = 0.05,
    **overrides: Any,
) -> Verdict:
    fields: dict[str, Any] = {
        "id": f"bench/test_x.py::{name}",
        "metric": "step_time_s",
        "unit": "s",
        "better": "lower",
        "kind": kind,
        "method": "paired",
        "base": 0.010,
        "head": 0.0105,
        "effect": effect,
        "interval": (0.04, 0.06),
        "launches": 5,
        "smallest_visible_effect": 0.01,
        "limit": "2%",
        "reason": f"why {name}",
    }
    return Verdict(**{**fields, **overrides})


def lonely(name: str, kind: VerdictKind, reason: str = "") -> Verdict:
    return Verdict(id=f"bench/test_x.py::{name}", kind=kind, reason=reason)


def comparison(*verdicts: Verdict, **overrides: Any) -> Comparison:
    return Comparison(base="main", head="now", verdicts=verdicts, **overrides)


SUITE = comparison(
    verdict("test_same", "unchanged", 0.001),
    verdict("test_slow", "regressed", 0.041),
    verdict("test_fast", "improved", -0.2),
    verdict("test_unsure", "inconclusive", 0.01),
    lonely("test_new", "new", "the base has no such benchmark"),
    lonely("test_broken", "errored", "it failed: RuntimeError"),
    verdict("test_slower", "regressed", 0.11),
    environment_differences=(FactDifference(key="torch.version", base="2.12", head="2.13"),),
    notes=("compared although incomparable",),
)


def rendered(name: str, *comparisons: Comparison, **page: Any) -> str:
    text: str = load("formats", name)(comparisons, Page(**page))
    return text


def text_of(lines: list[Any]) -> str:
    return "\n".join(plain(line) for line in lines)


def test_headline_counts_each_kind_with_the_mark_of_the_table() -> None:
    """Most important first, one per kind; kinds without a value have no mark."""
    assert headline(SUITE.verdicts, marks=True) == (
        "✗ 2 regressed · ! 1 errored · ✓ 1 improved · ? 1 inconclusive · = 1 unchanged · 1 new"
    )
    assert headline([verdict(), verdict(kind="improved")]) == "1 regressed · 1 improved"
    assert headline([]) == "nothing was compared"


def test_the_reference_has_every_mark() -> None:
    """Of a terminal, of one in ASCII, and of GitHub."""
    reference = (PUBLISHED.parents[1] / "reference" / "gate.md").read_text(encoding="utf-8")
    for kind in filter(mark, VERDICT_KINDS):
        row = f"| `{mark(kind)}` | `{kind}` | `{in_ascii(mark(kind))}` | "
        (github_mark,) = re.findall(f"{re.escape(row)}(.) \\|", reference)
        assert f"{github_mark} {kind}" in github.table([verdict(kind=kind)])[2]


def test_worst_comes_first() -> None:
    """Regressions by effect, failures, the rest by effect, then verdicts without one."""
    names = [v.id.rpartition("_")[2] for v in worst_first(SUITE.verdicts)]
    assert names == ["slower", "slow", "broken", "unsure", "same", "fast", "new"]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("heads", [1, 3])
def test_table_fits_the_terminal(width: int, heads: int) -> None:
    """No line is wider than the terminal; the base is there, and so is every benchmark's name."""
    long = [verdict(f"test_{'long_' * 20}{i}[amp]", reason="12 µs") for i in range(12)]
    suite = replace(SUITE, verdicts=(*SUITE.verdicts, *long))
    text = text_of(verdict_lines([suite] * heads, width))
    assert max(map(cells.width, text.splitlines())) <= width
    assert in_ascii(text).isascii()
    for word in ("regressed", "errored", "unchanged", "improved", "inconclusive", "new"):
        assert word in text
    assert "torch.version" in text
    assert "compared although incomparable" in text
    titles = next(line for line in text.splitlines() if line.startswith("benchmark"))
    assert "base" in titles
    assert len({*re.findall(r"^ *(\S*long_\S*?\d+\S*)", text, re.MULTILINE)}) >= len(long)


def test_table_says_why() -> None:
    """Change, interval and the reason are there; what is unchanged needs no reason."""
    text = text_of(verdict_lines([SUITE], 160))
    (row,) = (line for line in text.splitlines() if line.startswith("slow "))
    assert mentions(row, "10.00 ms", "10.50 ms", "+4.10%", "[+4.00%, +6.00%]", " 5 ", "✗ regressed")
    assert "errored: broken: it failed: RuntimeError" in text
    assert "why test_same" not in text
    assert "file  bench/test_x.py" in text.splitlines()


def test_a_change_has_the_sign_of_the_value() -> None:
    """Less throughput is worse, and below zero; the ends of its interval are in order."""
    rate = verdict(metric="samples_per_s", unit="samples/s", better="higher", effect=0.05)
    text = text_of(verdict_lines([comparison(rate)], 160))
    assert re.search(r"-5\.00% +\[-6\.00%, -4\.00%\] +5 +✗ regressed", text)


def test_the_number_that_is_meant_is_said_where_the_column_has_no_room() -> None:
    """The metric's column moves into a heading for each metric."""
    many = [verdict(f"test_{'long_' * 9}{i}", metric="step_time_min_s") for i in range(3)]
    memory = verdict(f"test_{'long_' * 9}1", metric="peak_memory_bytes", unit="bytes")
    lines = text_of(verdict_lines([comparison(*many, memory)], 62)).splitlines()
    titles = next(line for line in lines if line.startswith("benchmark"))
    assert "metric" not in titles
    assert lines.index("step_time_min_s") < lines.index("peak_memory_bytes")


def test_equal_reasons_are_said_once() -> None:
    """A thousand benchmarks with one reason share one line, and so do those with one doubt."""
    many = (verdict(f"test_{i}", "inconclusive", reason="3 runs: 10 needed") for i in range(1000))
    text = text_of(verdict_lines([comparison(*many)], 120))
    assert text.count("10 needed") == 1
    assert "and 997 more: 3 runs" in text
    reason = "likely renamed from bench/test_x.py::test_b: keep the old name"
    renamed, other = (
        lonely("test_a", "new", reason),
        lonely("test_b", "removed", "only in the base"),
    )
    text = text_of(verdict_lines([comparison(renamed, other)], 120))
    assert "likely renamed from b: keep" in text
    doubtful = (verdict(f"test_{i}", reason=f"{i}% slower; in doubt: loud") for i in range(9))
    text = text_of(verdict_lines([comparison(*doubtful)], 120))
    assert re.findall(".*loud.*", text) == ["all of these: in doubt: loud"]
    assert "\n1: 1% slower\n" in text


def test_heads_stand_side_by_side() -> None:
    """Three runs are one table: the base once, then value and change of each head with its mark."""
    same = replace(SUITE, head="later", notes=(), environment_differences=())
    text = text_of(verdict_lines([SUITE, same], 120))
    assert re.search(r"^slow +step_time_s +10\.00 ms( +10\.50 ms .*✗){2}$", text, re.MULTILINE)
    assert "head 1: compared although incomparable" in text
    assert '  torch.version: "2.12" → "2.13" (head 1)' in text.splitlines()
    assert "slow: why test_slow" in text.splitlines()
    other = replace(same, verdicts=(lonely("test_slow", "removed", "only in the base"),))
    text = text_of(verdict_lines([SUITE, other], 120))
    assert re.search(r"^slow +step_time_s .* 10\.50 ms +\+4\.10% ✗ +removed$", text, re.MULTILINE)
    assert "removed: slow (head 2): only in the base" in text.splitlines()
    assert "head 2: 1 removed" in text.splitlines()
    page = rendered("markdown", SUITE, other)
    assert re.findall("^`.* against .*", page, re.MULTILINE) == [
        "`now` against `main`",
        "`later` against `main`",
    ]
    assert re.search("test_slow.*🔴 regressed | why test_slow", page)
    assert re.search("test_slow.*🟡 removed | only in the base", page)


def test_a_row_is_of_the_metric_that_decides_for_any_head() -> None:
    """The other heads' cells are parts of their verdicts; rows without a change are left out."""
    floor, median = (_part(name, "unchanged", 1.0) for name in ("step_time_min_s", "step_time_s"))
    still = verdict("test_a", "unchanged", metric="step_time_min_s", parts=(floor, median))
    slow = verdict("test_a", "regressed", parts=(floor, replace(median, kind="regressed")))
    text = text_of(verdict_lines([comparison(still), comparison(slow)], 120))
    assert re.search(r"^a +step_time_s +1\.000 s .* 0\.00% = +10\.50 ms .*✗$", text, re.MULTILINE)
    assert not re.search(r"^a +step_time_min_s", text, re.MULTILINE)


def test_only_changed_leaves_the_rest_to_the_counts() -> None:
    """Unchanged rows are left out and counted, the counts are of all."""
    text = text_of(verdict_lines([SUITE], 120, only_changed=True))
    assert not re.search("^same ", text, re.MULTILINE)
    assert "not listed: 1 row without a change" in text
    assert "1 unchanged" in text


def test_what_is_not_there_has_no_text() -> None:
    """Neither a value nor a change; a change has its sign."""
    assert (number(0.0184, "s"), number(None, "s")) == ("18.40 ms", "")
    assert [signed(change) for change in (-0.9996, None)] == ["-99.96%", ""]


@pytest.mark.parametrize("name", choices("formats"))
def test_every_format_renders_anything(name: str) -> None:
    """Any name, and any verdict without numbers, is rendered without control characters."""
    evil = comparison(
        replace(verdict(), id=EVIL, reason=EVIL, metric="a|b"),
        *(lonely(f"test_{kind}", kind) for kind in VERDICT_KINDS),
        verdict(interval=(float("nan"), float("inf")), effect=float("nan")),
        environment_differences=(FactDifference(key=EVIL, base=[EVIL], head=None),),
        notes=(EVIL,),
    )
    text = rendered(name, evil, replace(evil, head=EVIL))
    assert text.endswith("\n")
    assert "\x1b" not in text
    text.encode()
    assert rendered(name, comparison())


@pytest.mark.parametrize("name", choices("formats"))
def test_no_line_is_a_command_for_githubs_runner(name: str) -> None:
    """Neither at the start of a name or reason, nor at the start of a wrapped line."""
    pwned = [
        replace(verdict(), id=f"t.py::{'::error::pwn' * n}", reason=f"{'x' * 7 * n} ::error::pwn")
        for n in range(1, 30)
    ]
    broken = [replace(verdict(), id="t.py::a", reason="y" * n + "::error::" * 9) for n in range(60)]
    evil = comparison(*pwned, *broken, notes=("::stop-commands::x", "##[error]pwn"))
    for width in (20, 60, 80):
        text = rendered(name, replace(evil, base="::add-mask::a"), width=width)
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
        assert "##[" not in text or name == "json"


def test_color_is_only_where_it_is_wanted() -> None:
    """Without color there is no escape sequence; with it a regression is red."""
    assert "\x1b" not in rendered("table", SUITE)
    assert "\x1b[31m✗\x1b[0m" in rendered("table", SUITE, color=True)


def test_json_is_the_document_of_the_published_schema() -> None:
    """The JSON has the documented fields and validates against the published schema."""
    text = rendered("json", SUITE, replace(SUITE, head="other"))
    document = json.loads(text, parse_constant=pytest.fail)
    Draft202012Validator(json.loads(PUBLISHED.read_text(encoding="utf-8"))).validate(document)
    first = document["benchmarks"][0]
    assert {k: first[k] for k in ("id", "metric", "base", "head", "verdict", "effect")} == {
        "id": "bench/test_x.py::test_slower",
        "metric": "step_time_s",
        "base": 0.010,
        "head": 0.0105,
        "verdict": "regressed",
        "effect": 0.11,
    }
    assert (first["interval"], first["launches"]) == ([0.04, 0.06], 5)
    assert (first["smallest_visible_effect"], first["reason"]) == (0.01, "why test_slower")
    assert {b["head_label"] for b in document["benchmarks"]} == {"now", "other"}
    assert document["environment_differences"][0]["key"] == "torch.version"
    (new,) = (b for b in document["benchmarks"][:7] if b["verdict"] == "new")
    assert new["effect"] is None


@DESCRIBES
def test_published_schema_is_current() -> None:
    """The schema in ``docs/`` equals that of the records."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(published)
    assert published == stored.json_schema(verdict_document.VerdictDocument)


def test_csv_is_read_by_a_spreadsheet() -> None:
    """Numbers round-trip exactly; a name that looks like a formula is escaped."""
    text = rendered("csv", comparison(replace(verdict(effect=-0.125), id="=1+1")))
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["id"], row["effect"]) == ("'=1+1", "-0.125")
    assert (row["base"], row["interval_low"], row["launches"]) == ("0.01", "0.04", "5")


def test_a_row_of_csv_names_all_metrics_that_moved_and_what_would_decide() -> None:
    """The other columns are those of one metric."""
    kinds: dict[str, VerdictKind] = {
        "step_time_min_s": "regressed",
        "step_time_s": "regressed",
        "step_time_mean_s": "inconclusive",
    }
    parts = tuple(_part(name, kind) for name, kind in kinds.items())
    open_ = verdict(kind="inconclusive", pairs_needed=25)
    compared = comparison(verdict(parts=parts), open_)
    rows = csv.DictReader(io.StringIO(rendered("csv", compared)))
    assert {(row["verdict"], row["moved"], row["pairs_needed"]) for row in rows} == {
        ("regressed", "step_time_min_s step_time_s", ""),
        ("inconclusive", "", "25"),
    }


def _part(metric: str, kind: VerdictKind, value: float | None = None) -> VerdictPart:
    return VerdictPart(
        metric=metric,
        unit="s",
        better="lower",
        kind=kind,
        limit="2%",
        base=value,
        head=value,
        effect=None if value is None else 0.0,
    )


def _cells(row: str) -> list[str]:
    """A table's row split as GitHub splits it."""
    return re.split(r"(?<!\\)\|", row)[1:-1]


def test_markdown_shows_names_and_nothing_else() -> None:
    """A name cannot end a cell, or bring HTML, a mention or a link."""
    escaped = github.code("a|b<i>")
    assert escaped == "`a\\|b<i>`"
    evil = github.code(EVIL)
    assert not re.search(
        r"[<>`|@\[\]](?!/?code>)", evil.replace("<code>", "").replace("</code>", "")
    )
    rows = github.table([verdict(), replace(verdict(), id=EVIL, reason=EVIL)])
    assert {len(_cells(row)) for row in rows} == {9}
    assert "`step_time_s`" in rows[2]
    assert "🔴 regressed" in rows[2]


def test_step_summary_tells_what_changed_first() -> None:
    """Headline, changes, collapsed remainder, differences, commands to reproduce and accept."""
    text = github.step_summary(SUITE, reproduce="pytest x", accept="gpubench accept `id`")
    assert text.startswith("## 2 regressed · 1 errored")
    changes, details = text.split("<details>", 1)
    assert "test_slow" in changes
    assert "test_same" not in changes
    assert "<summary>1 unchanged</summary>" in details
    assert "torch.version" in details
    assert "```shell\npytest x\n```" in details
    assert "gpubench accept `id`" in details


@pytest.mark.slow
def test_step_summary_stays_below_the_limit_of_github() -> None:
    """Of a page that is too long only the headline is left."""
    many = [verdict(f"test_{i}", "regressed", 0.0, reason="x" * 2000) for i in range(600)]
    text = github.step_summary(comparison(*many), reproduce="", accept="")
    assert len(text.encode()) < 1 << 20
    assert "600 regressed" in text


@pytest.mark.slow
def test_what_did_not_change_leaves_a_long_summary_first() -> None:
    """The regressed benchmark and the commands stay."""
    same = [verdict(f"{'long' * 60}{n}", "unchanged", 0.0) for n in range(4500)]
    text = github.step_summary(
        comparison(*same, verdict("test_bad")), reproduce="pytest bad", accept=""
    )
    assert "too many to list here" in text
    assert "test_bad" in text
    assert "pytest bad" in text


def test_annotations_are_escaped() -> None:
    """Errors for regressions and failures, warnings for doubts, each by the runner's rules."""
    odd = verdict("test_odd[a,b:c%]", reason="50% worse\r\nnext: line, really")
    locations = {odd.id: ("bench/a,b:c.py", 12)}
    (line,) = github.annotations(comparison(odd), locations)
    title, _, text = line.partition("]%3A regressed::bench/test_x.py::")
    assert title == "::error file=bench/a%2Cb%3Ac.py,line=12,title=test_odd[a%2Cb%3Ac%25"
    assert text == "test_odd[a,b:c%25]: step_time_s +5.00%25: 50%25 worse%0Anext: line, really"
    levels = [line.split(" ")[0] for line in github.annotations(SUITE, {})]
    assert levels == ["::error", "::error", "::error", "::warning"]
    (evil,) = github.annotations(comparison(replace(verdict(), id=EVIL)), {})
    assert "\n" not in evil
    assert "\x1b" not in evil


def test_only_what_can_be_judged_is_a_warning() -> None:
    """Verdicts that lack earlier runs share a notice, those of equal sides have no annotation."""
    early = [
        verdict(f"test_{n}", "inconclusive", effect, method="history", runs_needed=n)
        for n, effect in ((1, 0.05), (9, 0.0), (8, None))
    ]
    same = verdict("test_same", "inconclusive", 0.0)
    unsure = (verdict("test_a", "inconclusive", effect) for effect in (0.01, None))
    warning, other, *notice = github.annotations(comparison(*early, same, *unsure), {})
    assert {line.partition("title=")[0] for line in (warning, other)} == {"::warning "}
    assert notice == ["::notice title=cannot judge yet::3 verdicts: the baseline needs 9 more runs"]
    assert github.annotations(comparison(same), {}) == []
