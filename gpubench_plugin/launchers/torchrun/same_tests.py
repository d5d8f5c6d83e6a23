"""Whether all ranks collected the same benchmarks, and if not, what differs."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.records import Json

_RANKS_SHOWN: Final = 8
_IDS_SHOWN: Final = 3


def digest_of(ids: Sequence[str]) -> str:
    """Equal for equal `ids` in the same order."""
    return sha256("\n".join(ids).encode()).hexdigest()


def difference(mine: Sequence[str], of_root: Sequence[str]) -> Json:
    """What this rank collected that rank zero did not, and the other way round: the first few."""
    return {
        "count": len(mine),
        "differs": list(mine) != list(of_root),
        "has": _shown(sorted(set(mine) - set(of_root))),
        "lacks": _shown(sorted(set(of_root) - set(mine))),
    }


def message(told: Sequence[Json]) -> str:
    """The differences that the ranks `told`, in their order, for the user."""
    different = [rank for rank, one in enumerate(told) if one["differs"]]
    shown = different[:_RANKS_SHOWN]
    counts = ", ".join(f"rank {rank} selected {told[rank]['count']}" for rank in (0, *shown))
    parts = [f"the ranks collected different benchmarks: {counts}"]
    for rank in shown:
        one = told[rank]
        parts += [f"only rank {rank} has {one['has']}"] if one["has"] else []
        parts += [f"rank {rank} lacks {one['lacks']}"] if one["lacks"] else []
        if not (one["has"] or one["lacks"]):
            parts.append(f"rank {rank} has them in another order")
    if len(different) > len(shown):
        parts.append(f"and {len(different) - len(shown)} more ranks differ")
    return "; ".join(parts)


def _shown(ids: Sequence[str]) -> str:
    more = len(ids) - _IDS_SHOWN
    return ", ".join(ids[:_IDS_SHOWN]) + (f" and {more} more" if more > 0 else "")
