"""Runs and benchmarks that a user names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.cli.benchmark_names import matching_benchmarks, selected_benchmarks
from gpubench_plugin.core.errors import BrokenFile, UsageProblem
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.results import verdicts
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.registry import Registry
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.core.verdicts import Method

NAMES = (MLP, RESNET)


def test_a_benchmark_is_its_id_or_a_part_that_no_other_has() -> None:
    """An id that is a part of another one is still meant itself; case does not matter."""
    assert selected_benchmarks(MLP, NAMES, "it") == [MLP]
    assert selected_benchmarks("ResNet18", NAMES, "it") == [RESNET]
    assert selected_benchmarks("a.py::b", ("a.py::b", "a.py::bc"), "it") == ["a.py::b"]


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("resnet50", ["r.py::test_resnet50_train[amp]", "r.py::test_resnet50_train[fp32]"]),
        ("resnet50 and AMP", ["r.py::test_resnet50_train[amp]"]),
        ("train and not (amp or vit)", ["r.py::test_resnet50_train[fp32]"]),
        ("1 and 2]", ["v.py::test_vit_train[1 and 2]"]),
        ("gpubench(ranks=2)", []),
        ("--", []),
    ],
)
def test_benchmarks_are_selected_as_by_pytest(text: str, matches: list[str]) -> None:
    """A part, or an expression; a part counts as it is where it reads like an expression."""
    names = (
        "r.py::test_resnet50_train[fp32]",
        "r.py::test_resnet50_train[amp]",
        "v.py::test_vit_train[1 and 2]",
    )
    assert matching_benchmarks(text, names) == matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train", f"2 benchmarks of it; give one of them, .*\n  '{re.escape(MLP)}'\n  '"),
        ("test_mpl_train[amp]", re.escape(f"did you mean '{MLP}'")),
        ("xyz", "known: benchmarks/training/test_mlp.py"),
        (" ", "BENCHMARK: empty; allowed: an id"),
        ("train and", "'train and' .* pytest -k: expected not OR"),
        ("not", "'not' .* pytest -k: "),
    ],
)
def test_what_names_no_benchmark_or_several_is_refused(text: str, message: str) -> None:
    """With the nearest, or those that match, each quoted to be copied into a shell."""
    with pytest.raises(UsageProblem, match=message):
        selected_benchmarks(text, NAMES, "it")


def test_an_id_with_control_characters_may_be_given_as_it_is_shown() -> None:
    """Messages show it escaped on one line, and take it back so; one that equals that is meant."""
    shown, escape = r"m.py::a\x1b b", "m.py::a\x1b\nb"
    assert selected_benchmarks(shown, (escape, MLP), "it") == [escape]
    assert selected_benchmarks(r"A\x1b", (escape, MLP), "it") == [escape]
    assert selected_benchmarks(shown, (escape, shown), "it") == [shown]
    for text in ("m", "xyz"):
        with pytest.raises(UsageProblem, match=re.escape(shown)) as refusal:
            selected_benchmarks(text, (escape, MLP), "it")
        assert escape not in str(refusal.value)


def test_of_many_benchmarks_some_are_named() -> None:
    """The message stays short."""
    with pytest.raises(UsageProblem, match="and 30 more"):
        selected_benchmarks("t", [f"t{number}" for number in range(50)], "it")


@pytest.mark.parametrize(
    ("base", "method", "counts"),
    [("last", "threshold", 0), ("last", "absolute", 1), ("main", "threshold", 1)],
)
def test_what_is_slower_than_the_last_run_can_be_a_sample(
    tmp_path: Path, base: str, method: Method, counts: int
) -> None:
    """Two runs of the same code differ by more than a threshold; a broken bound is broken."""
    directory = write_run(tmp_path, 0)
    verdict = Verdict(id=MLP, metric="step_time_s", kind="regressed", method=method)
    comparison = Comparison(base=base, head=directory.run_id, verdicts=(verdict,))
    directory.verdicts.write_text(verdicts.to_text([comparison]))

    assert len(RunReader(directory).regressed) == counts
    assert RunReader(directory).overview().regressed is bool(counts)
    with Registry.of_directories(tmp_path) as registry:
        registry.ingest(directory)
        assert registry.runs()[0].regressed is bool(counts)


def test_a_run_is_found_here_or_in_the_registry(tmp_path: Path) -> None:
    """With what speaks against it; several with one beginning are refused."""
    write_run(tmp_path, 0)
    bad = write_run(tmp_path, 1, regressed=[MLP], dirty=True)
    torn = write_run(tmp_path, 2)
    torn.verdicts.write_text("{")

    def objections(text: str, url: str = "none") -> tuple[str, ...]:
        with Resolver(url, tmp_path, tmp_path) as resolver:
            return resolver.candidate(text).objections

    assert objections(run_id(0)) == ()
    here = objections(run_id(1))
    assert ["regressed" in here[0], "uncommitted" in here[1]] == [True, True]
    with pytest.raises(BrokenFile, match="verdicts"):
        objections(run_id(2))
    with pytest.raises(UsageProblem, match="3 runs start with"):
        objections("2026")
    with Registry.open("", tmp_path) as registry:
        registry.ingest(bad)
    bad.journal.unlink()
    assert objections(run_id(1)[:13], url="") == here
    torn.verdicts.unlink()
    with Registry.open("", tmp_path) as registry:
        registry.ingest(torn)
    torn.summary.write_text("{")
    with Resolver("", tmp_path, tmp_path) as resolver:
        for named in (resolver.single, resolver.run):
            with pytest.raises(BrokenFile, match="not JSON"):
                named(run_id(2))
        with pytest.raises(UsageProblem, match=r"last~9: .* has 2 runs$"):
            resolver.run("last~9")
    for text in ("1999", "1999.json", "19/99"):
        with pytest.raises(UsageProblem, match=r"no run in|no such folder"):
            objections(text, url="")


@pytest.mark.parametrize(
    ("flags", "objections", "remarks"),
    [
        (["throttled", "unsteady", ""], 1, 0),
        (["throttled", "", ""], 0, 0),
        (["unsteady", ""], 0, 0),
        (["contended", "contended", "drifting"], 0, 1),
        (["changed_work", "instrumented", "dependent", "drifting", "outliers"], 1, 0),
    ],
)
def test_a_run_most_of_which_is_no_level_is_not_pinned(
    tmp_path: Path, flags: list[str], objections: int, remarks: int
) -> None:
    """In doubt in over half of what it measured; contended is said alone."""
    write_run(
        tmp_path,
        0,
        [
            *(measurement(f"t{n}", flags=(name,) if name else ()) for n, name in enumerate(flags)),
            measurement("failed", outcome="failed"),
        ],
    )
    found = Resolver("none", tmp_path, tmp_path).candidate(run_id(0))
    assert (len(found.objections), len(found.notes)) == (objections, remarks)
    for remark in found.notes:
        assert remark == "most of its measured benchmarks are contended (2 of 3)"
