"""Which tests are adopted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.config.parametrization import fixture_names, is_adopted, is_benchmark
from gpubench_plugin.launchers.context import STATE, BenchmarkState, case_on_ranks
from tests.unit.bench.adoption.test_adopter import case


def item(*fixtures: str, adopt: bool = True, plugin: bool = True, marked: bool = False) -> Any:
    """An item with these fixtures in a session with these options."""
    return SimpleNamespace(
        fixturenames=list(fixtures),
        get_closest_marker=lambda _: object() if marked else None,
        config=SimpleNamespace(
            getoption=lambda name, default=None: {"gpubench_adopt": adopt}.get(name, default),
            pluginmanager=SimpleNamespace(hasplugin=lambda _: plugin, get_plugin=lambda _: None),
        ),
        stash=pytest.Stash(),
    )


@pytest.mark.parametrize(
    ("one", "adopted", "counts"),
    [
        (item("benchmark"), True, True),
        (item("tmp_path", "benchmark"), True, True),
        (item("benchmark", marked=True), True, True),
        (item("benchmark", adopt=False), False, False),
        (item("benchmark", marked=True, adopt=False), False, False),
        (item("benchmark", plugin=False), False, False),
        (item("gpubench", "benchmark"), False, True),
        (item("tmp_path"), False, False),
        (item(marked=True), False, True),
    ],
)
def test_a_test_of_pytest_benchmarks_counts_with_the_flag(
    one: Any, adopted: bool, counts: bool
) -> None:
    """One of ours is never adopted, and nothing is where pytest-benchmark is not there."""
    assert is_adopted(one, fixture_names(one)) is adopted
    assert is_benchmark(one, fixture_names(one)) is counts


def test_what_is_no_function_asks_for_nothing() -> None:
    """A doctest, say."""
    assert fixture_names(SimpleNamespace()) == ()  # type: ignore[arg-type] # a stand-in


def test_no_rank_runs_an_adopted_test() -> None:
    """For gang and torchrun it is an ordinary one, and no number of ranks refuses it."""
    theirs, ours, ordinary = item("benchmark"), item("gpubench"), item()
    theirs.stash[STATE] = BenchmarkState(case=case())
    ours.stash[STATE] = BenchmarkState(case=case(adopted=False))
    assert case_on_ranks(theirs) is case_on_ranks(ordinary) is None
    assert case_on_ranks(ours) is ours.stash[STATE].case
    assert theirs.stash[STATE].case.skip_reason(4) is None
    assert ours.stash[STATE].case.skip_reason(4) is not None
