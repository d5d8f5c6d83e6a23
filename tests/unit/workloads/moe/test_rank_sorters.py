"""The order in which ranks take experts."""

from __future__ import annotations

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.workloads.moe import rank_sorters
from gpubench_plugin.workloads.moe.groups import ParallelGroups
from tests.support.messages import mentions
from tests.unit.workloads.moe.made import construction, measured

LOADS = (9.0, 8.0, 1.0, 2.0, 7.0, 3.0)


@pytest.fixture
def _forgotten(monkeypatch):
    monkeypatch.setattr(rank_sorters, "_BUILDERS", dict(rank_sorters._BUILDERS))


def heaviest(order, ranks):
    size = len(order) // ranks
    return max(sum(LOADS[e] for e in order[r * size : (r + 1) * size]) for r in range(ranks))


def test_by_load_spreads_heavy_experts():
    """Its heaviest rank has less than in the experts' own order, every expert is taken once."""
    order = rank_sorters.by_load(LOADS, 2)
    assert sorted(order) == list(range(6))
    assert (heaviest(range(6), 2), heaviest(order, 2)) == (18, 16)


@pytest.mark.usefixtures("_forgotten")
def test_a_registered_builder_is_asked_with_the_groups():
    """moe.rank_sorter names what a project registered; it sees the loads and decides the order."""
    seen = []

    def builder(groups):
        def backwards(loads, ranks):
            seen.append((groups.expert.size, tuple(loads), ranks))
            return range(len(loads))[::-1]

        return backwards

    rank_sorters.register("backwards", builder)
    placement = construction(rank_sorter="backwards").placement()
    assert placement.order == (3, 2, 1, 0)
    ((size, loads, ranks),) = seen
    assert (size, sum(loads), ranks) == (1, 48, 1)


@pytest.mark.usefixtures("_forgotten")
def test_the_order_changes_no_result():
    """Experts at other places give what the reference does, bit for bit."""
    rank_sorters.register("mixed", lambda _: lambda loads, ranks: (2, 0, 3, 1))
    errors = measured(rank_sorter="mixed").prepare(None).correctness
    assert errors["experts_of_rank"] == [2, 0, 3, 1]
    assert set(errors["error_against_one_process"].values()) == {0.0}


def test_an_unknown_sorter_is_refused_with_the_nearest():
    """The message names the key, the value, what was meant and what there is."""
    with pytest.raises(UsageProblem) as refused:
        construction(rank_sorter="by-lod")
    said = ("moe.rank_sorter: ", "'by-lod' (did you mean 'by-load'?)", "allowed: by-load, none")
    assert mentions(refused.value, *said)


@pytest.mark.usefixtures("_forgotten")
def test_an_order_that_forgets_an_expert_is_refused():
    """A sorter that names an expert twice is told so."""
    rank_sorters.register("broken", lambda _: lambda loads, ranks: (0, 0, 1, 2))
    with pytest.raises(UsageProblem, match=r"'broken' .*\(0, 0, 1, 2\); .* a permutation of 4"):
        construction(rank_sorter="broken").placement()


def test_built_in_names_are_kept():
    """A project cannot make by-load mean something else."""
    with pytest.raises(UsageProblem, match="'by-load' is a built-in name"):
        rank_sorters.register("by-load", lambda _: rank_sorters.in_order)
    assert rank_sorters.build_sorter("none", ParallelGroups())((5.0, 1.0), 1) == (0, 1)
