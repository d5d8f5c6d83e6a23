"""Which denoising steps a rank takes."""

from __future__ import annotations

from typing import Final

from gpubench_plugin.errors import Unsupported, not_one_of

REMAINDERS: Final = ("first", "last", "spread")
"""Who takes the steps that are left: the first rank, the last, or the first few one each."""

_REFUSE: Final = "refuse"


def steps_of(
    rank: int, *, world_size: int, total: int, remainder: str = _REFUSE, together: int = 1
) -> range:
    """The steps of `rank` among `total`, counted from zero.

    Without a remainder they start at ``rank * (total // world_size)``.

    Args:
        rank: whose.
        world_size: the number of ranks.
        total: the time steps of the scheduler, each one evaluation of the network.
        remainder: who takes what is left; ``refuse`` refuses that.
        together: the evaluations that make up one step of the solver; ranks part between steps.

    Raises:
        Unsupported: steps would be left out, a rank would have none, or a step of the solver
            would be torn apart.
        UsageProblem: there is no such remainder.
    """
    if remainder not in (_REFUSE, *REMAINDERS):
        raise not_one_of("diffusion.remainder", remainder, (_REFUSE, *REMAINDERS))
    if world_size > total:
        raise Unsupported(
            f"diffusion.denoising_steps: {total} steps leave some of {world_size} ranks without "
            f"any; allowed: {world_size} steps or more"
        )
    rest = total % world_size
    if rest and remainder == _REFUSE:
        raise Unsupported(
            f"diffusion.denoising_steps: {total} steps do not divide among {world_size} ranks, "
            f"{rest} would be left out; allowed: a multiple of {world_size}, or "
            f"diffusion.remainder={_listed(_fitting(world_size, total, together))}"
        )
    bounds = _bounds(world_size, total, remainder)
    if torn := _torn(bounds, together):
        raise Unsupported(
            f"diffusion.denoising_steps: between ranks {torn - 1} and {torn}, at {bounds[torn]} of "
            f"{total}, a step of {together} evaluations would be torn apart; "
            f"{_instead(world_size, total, together)}"
        )
    return range(bounds[rank], bounds[rank + 1])


def _bounds(world_size: int, total: int, remainder: str) -> list[int]:
    """Where the ranks' steps begin, and at the end the `total`."""
    share, rest = divmod(total, world_size)
    extra = [0] * world_size
    if remainder == "first":
        extra[0] = rest
    elif remainder == "last":
        extra[-1] = rest
    elif remainder == "spread":
        extra[:rest] = [1] * rest
    return [rank * share + sum(extra[:rank]) for rank in range(world_size + 1)]


def _torn(bounds: list[int], together: int) -> int:
    """The first rank that would begin inside a step of the solver; 0 if none does."""
    return next((rank for rank, bound in enumerate(bounds[:-1]) if bound % together), 0)


def _fitting(world_size: int, total: int, together: int) -> list[str]:
    """The ways to place the remainder that tear no step apart."""
    return [way for way in REMAINDERS if not _torn(_bounds(world_size, total, way), together)]


def _instead(world_size: int, total: int, together: int) -> str:
    if total % world_size and (ways := _fitting(world_size, total, together)):
        return f"allowed: diffusion.remainder={_listed(ways)}"
    return "choose another number of steps or ranks"


def _listed(ways: list[str]) -> str:
    return " or ".join(ways) if ways else f"<none of {', '.join(REMAINDERS)} fits>"
