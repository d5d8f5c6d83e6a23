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
    assert headline(SUITE.verdicts, mark) == (
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
        assert f"- {github_mark} {kind} `a`" in github.page(comparison(verdict(kind=kind)))


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
        "`now` against `main`, in `bench/test_x.py`",
        "`later` against `main`, in `bench/test_x.py`",
    ]
    first, second = page.split("## ")[1:]
    assert re.search(r"^- 🔴 regressed `slow`: 10\.00 ms → ", first, re.MULTILINE)
    assert re.search("^- 🟡 removed `slow`$", second, re.MULTILINE)
    assert "removed: `slow`: only in the base" in second


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


def _outside_of_code(text: str) -> str:
    """The text without its code spans, which begin and end as CommonMark says."""
    return re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "·", text)


HOSTILE = (
    EVIL,
    "t.py::test_a | b",
    "t.py::test_`` ` [x](http://a) ![i](y)",
    "t.py::test_- [a]: http://b",
    "t.py::test_@team,@you #1,GH-1 org/a#2 www.a.b http://c",
    "t.py::test_<script>alert(1)</script> </details> <!-- x",
    "t.py::test_*a* _b_ ~~c~~ $d e$ :smile: &lt; &#35; \\",
    "t.py::test_\u202e\u2066a",
    "`",
    "- a",
    "1. a",
    "> [!NOTE] a",
    "===",
    "```",
    "- [ ] a",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_page_shows_is_text(text: str) -> None:
    """In any place: no markup, HTML, mention, reference, link, emoji or line of a name's own."""
    evil = Comparison(
        base=text,
        head=text,
        verdicts=tuple(
            replace(
                verdict(kind=kind),
                id=text,
                metric=text,
                unit=text,
                reason=f"{text}; b",
                doubts=text,
            )
            for kind in ("regressed", "unchanged", "inconclusive", "new")
        ),
        notes=(text,),
        environment_differences=(FactDifference(key=text, base=[text], head=None),),
    )
    page = github.page(evil)
    shape = re.compile(
        r"## .*|> .*| *- .*|· against ·(, in ·)?|<details( open)?><summary>.*|</details>|"
    )
    for line in page.splitlines():
        rest = _outside_of_code(line)
        assert shape.fullmatch(rest)
        own = re.sub(r"^(## |> | *- )|</?(details|summary)( open)?>", "", rest)
        assert not re.search(
            r"[`*_~#@$\\]|<[a-z!/]|&#?\w+;|\]\S*[(\[:]|://|www|:\w+:|GH-|[\u202e\u2066]", own
        )
        assert not re.match(r">|[-+=]+( |$)|\[(?!\+)|\d+[.)]( |$)", own)
    starts, ends = (re.findall(f"^<{sign}details", page, re.MULTILINE) for sign in ("", "/"))
    assert len(starts) == len(ends) == 4


def test_a_command_holds_what_it_is_given() -> None:
    """No line of it ends its block."""
    page = github.page(SUITE, reproduce="a\n```\n<b>", accept=f"accept ```` {EVIL}")
    fences = re.findall("^`+(?:shell)?$", page, re.MULTILINE)
    assert fences == ["````shell", "````", "`````shell", "`````"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("step_time_mean_s 4.1% slower (limit 5%)", "`step_time_mean_s` 4.1% slower (limit 5%)"),
        ("in doubt: not_converged (head), loud", "in doubt: `not_converged` (head), loud"),
        ("12.00 ms → 13.00 ms, ≈ +8% [+4%, +9%]", "12.00 ms → 13.00 ms, ≈ +8% [+4%, +9%]"),
        ("x; `gpubench ab --base a_b` decides", "x; `gpubench ab --base a_b` decides"),
        ("32 launches, seed 1", "32 launches, seed 1"),
        ("bench/test_a.py::test_b[c-d]: gone", "`bench/test_a.py::test_b[c-d]`: gone"),
        ("a `b_c", "a `` `b_c ``"),
    ],
)
def test_text_can_be_read_as_it_is(text: str, shown: str) -> None:
    """Names, metrics and commands are code, and nothing has an escape."""
    assert github.prose(text) == shown


def test_page_tells_what_changed_first() -> None:
    """Headline, sides, a line per change; the rest and the differences collapsed; commands."""
    doubtful = verdict("test_odd", doubts="odd (head)", reason="5% slower; in doubt: odd (head)")
    memory = verdict("test_slow", "improved", -0.5, metric="peak_memory_bytes", unit="bytes")
    suite = replace(SUITE, verdicts=(*SUITE.verdicts, doubtful, memory))
    page = github.page(suite, reproduce="pytest x", accept="gpubench accept `id`")
    assert page.startswith(
        "## 🔴 3 regressed · 💥 1 errored · 🟢 2 improved · 🟡 1 inconclusive · ⚪ 1"
    )
    visible, details = page.split("<details", 1)
    assert visible.splitlines()[2] == "`now` against `main`, in `bench/test_x.py`"
    assert re.findall("^- (.*)", visible, re.MULTILINE) == [
        "🔴 regressed `slower`: 10.00 ms → 10.50 ms, +11.0% [+4.00%, +6.00%]",
        "🔴 regressed `odd`: 10.00 ms → 10.50 ms, ≈ +5.00% [+4.00%, +6.00%]; in doubt: odd (head)",
        "🔴 regressed `slow`: 10.00 ms → 10.50 ms, +4.10% [+4.00%, +6.00%]",
        "💥 errored `broken`",
        "🟢 improved `slow` `peak_memory_bytes`: 0 B → 0 B, -50.0% [+4.00%, +6.00%]",
        "🟢 improved `fast`: 10.00 ms → 10.50 ms, -20.0% [+4.00%, +6.00%]",
    ]
    assert "odd (head)" not in details
    assert "- errored: `broken`: it failed: RuntimeError" in details
    assert " open><summary>🟡 1 inconclusive · 🟡 1 new</summary>" in details
    assert "<details><summary>⚪ 1 unchanged</summary>" in details
    assert "torch.version" in details
    assert "```shell\npytest x\n```" in details
    assert "gpubench accept `id`" in details
    assert "&#" not in page
    assert max(map(len, page.splitlines())) < 200
    assert "unchanged</summary>" not in github.page(suite, only_changed=True)


def test_doubts_of_what_is_collapsed_are_counted_outside() -> None:
    """More than a few are collapsed, those that decide the exit code never."""
    many = [verdict(f"test_{n}", "inconclusive", doubts="loud (head)" * (n > 7)) for n in range(10)]
    unchecked = verdict("test_gone", "not_measured", None, head=None)
    page = github.page(comparison(*many, unchecked))
    assert "<details><summary>🟡 10 inconclusive · 2 in doubt</summary>" in page
    assert page.index("\n- 🟡 not measured `gone`: ") < page.index("<details")


def test_a_long_reason_has_a_line_for_each_clause() -> None:
    """And is said once for all that have it."""
    clauses = ["99% interval 4.1% to 5.5%", "effects from 5.0% on are detected", "a_b " * 30]
    slow = [verdict(f"test_{n}", reason="; ".join(clauses)) for n in range(2)]
    slow.append(verdict("test_c", reason="c"))
    page = github.page(comparison(*slow))
    for clause in clauses:
        assert page.count(github.prose(clause)) == 1
    assert "\n- `0`, `1`:\n  - 99% interval 4.1% to 5.5%\n  - effects" in page


@pytest.mark.parametrize(
    ("heads", "each", "long"),
    [
        (1, 500, ""),
        (3, 200, ""),
        (200, 5, ""),
        (200, 5, "x" * 1000),
        (2, 5, "e\u0301" * 3000),
        (1, 5, "`" * 5000),
    ],
    ids=["one", "several", "heads", "heads-of-long-names", "marks", "fences"],
)
def test_page_stays_below_the_limit_of_github(heads: int, each: int, long: str) -> None:
    """Whatever is long, or many; no line is cut, and what is left out is counted."""
    kinds: tuple[VerdictKind, ...] = (
        "regressed",
        "errored",
        "improved",
        "inconclusive",
        "unchanged",
    )
    many = [
        replace(verdict(f"test_{n}{long}", kind), doubts=long, reason=f"{n} {long}; {n}")
        for kind in kinds
        for n in range(each)
    ]
    suite = replace(
        comparison(*many, notes=[f"{n}{long}" for n in range(99)]),
        base=f"a{long}",
        environment_differences=[
            FactDifference(key=f"{n}{long}", base=1, head=2) for n in range(99)
        ],
    )
    page = rendered("markdown", *[suite] * heads)
    assert len(page.encode()) < 65_536
    assert page.count("<details") == page.count("</details>")
    assert page.count(f" {each} regressed") == min(heads, 40)
    assert "more than fit here" in page
    assert ("160 more heads left out" in page) == (heads == 200)


def test_what_did_not_change_leaves_a_long_page_first() -> None:
    """Then what is undecided, then the least of the changes; commands stay."""

    def page(same: int, unsure: int, slow: int) -> str:
        verdicts = [
            verdict(f"{'long_' * 9}{kind}{n}", kind, n / 1000, reason="")
            for kind, number in (("unchanged", same), ("inconclusive", unsure), ("regressed", slow))
            for n in range(number)
        ]
        text = github.page(comparison(*verdicts), reproduce="pytest bad")
        assert "pytest bad" in text
        assert len(text.encode()) < 65_536
        return text

    def left_out(text: str) -> list[str]:
        return re.findall("^- and (.*) more than fit here", text, re.MULTILINE)

    text = page(same=600, unsure=5, slow=5)
    (number,) = left_out(text)
    assert text.count("- ⚪") == 600 - int(number) > 100
    assert text.count("- 🔴") == text.count("- 🟡") == 5
    text = page(same=5, unsure=600, slow=5)
    assert left_out(text) == [str(600 - text.count("- 🟡")), "5"]
    text = page(same=5, unsure=5, slow=600)
    shown = text.count("- 🔴")
    assert left_out(text) == [str(600 - shown), "5", "5"]
    assert f"regressed{600 - shown}`" in text
    assert f"regressed{600 - shown - 1}`" not in text


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
