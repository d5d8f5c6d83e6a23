"""Expert-to-rank assignment strategies that balance load.

A sorter maps the load of every expert (its tokens in an untimed call, over all ranks) and the
number of ranks that share the experts to an order of experts: of E experts on R ranks the first E/R
are rank zero's, the next E/R rank one's, and so on. Results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpubench_plugin.core.errors import UsageProblem, invalid_choice

if TYPE_CHECKING:
    from gpubench_plugin.workloads.moe.groups import ParallelGroups

Sorter = Callable[[Sequence[float], int], Sequence[int]]
"""Maps loads and number of ranks to the order of experts."""

Builder = Callable[["ParallelGroups"], Sorter]
"""Builds a sorter for the process groups of a layer."""


def in_order(loads: Sequence[float], ranks: int) -> Sequence[int]:
    """Experts in numerical order."""
    return range(len(loads))


def by_load(loads: Sequence[float], ranks: int) -> Sequence[int]:
    """Greedy: heaviest expert first, to the least loaded rank with capacity.

    Source: the rule "longest processing time first", R. L. Graham, Bounds on Multiprocessing
    Timing Anomalies, SIAM J. Appl. Math. 17 (1969), with equally many experts on each rank.
    """
    capacity = len(loads) // ranks
    experts_by_rank: list[list[int]] = [[] for _ in range(ranks)]
    total = [0.0] * ranks
    for expert in sorted(range(len(loads)), key=lambda e: (-loads[e], e)):
        rank = min(
            (r for r in range(ranks) if len(experts_by_rank[r]) < capacity),
            key=lambda r: (total[r], r),
        )
        experts_by_rank[rank].append(expert)
        total[rank] += loads[expert]
    return [expert for experts in experts_by_rank for expert in experts]


_BUILDERS: dict[str, Builder] = {"none": lambda _: in_order, "by-load": lambda _: by_load}


def register(name: str, builder: Builder) -> None:
    """Register a builder for ``moe.rank_sorter=<name>`` on every rank, in ``conftest.py``.

    A later registration replaces an earlier one.

    Raises:
        UsageProblem: it is a built-in name.
    """
    if name in {"none", "by-load"}:
        raise UsageProblem(f"moe.rank_sorter: {name!r} is a built-in name; register another one")
    _BUILDERS[name] = builder


def build_sorter(name: str, groups: ParallelGroups) -> Sorter:
    """Build the sorter called `name`, which refuses an order that is not every expert once.

    Raises:
        UsageProblem: there is none of that name.
    """
    if name not in _BUILDERS:
        raise invalid_choice("moe.rank_sorter", name, sorted(_BUILDERS))
    sorter = _BUILDERS[name](groups)

    def sorted_experts(loads: Sequence[float], ranks: int) -> Sequence[int]:
        order = tuple(sorter(loads, ranks))
        if sorted(order) != list(range(len(loads))):
            raise UsageProblem(
                f"moe.rank_sorter={name!r} returned {order}; allowed: a permutation of "
                f"{len(loads)} experts"
            )
        return order

    return sorted_experts
