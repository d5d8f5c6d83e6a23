"""Noise schedulers whose steps may be split over ranks, and which of the steps a rank takes."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config import SCHEDULERS
from gpubench_plugin.errors import Unsupported, not_one_of
from gpubench_plugin.workloads._transformers import from_library

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SplitSafe:
    """A scheduler of diffusers of which any rank can take the steps from some step on.

    A step that `draws` noise is given a generator; between the `together` evaluations of the
    network in a step it keeps state. `noises_by_beta` says whether it takes the arguments of the
    schedule of betas, `options` what else it is made with.
    """

    draws: bool = False
    together: int = 1
    noises_by_beta: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


_UNCLIPPED: Final = {"clip_sample": False}  # as for latent images, which have no bounds

SPLIT_SAFE: Final[Mapping[str, SplitSafe]] = {
    "ddim": SplitSafe(options=_UNCLIPPED),
    "ddpm": SplitSafe(draws=True, options=_UNCLIPPED),
    "euler": SplitSafe(),
    "euler-ancestral": SplitSafe(draws=True),
    "flow-match-euler": SplitSafe(noises_by_beta=False),
    # Two evaluations per step, of which the second needs the first one's derivative.
    "heun": SplitSafe(together=2),
    "lcm": SplitSafe(draws=True),
}
"""Of the schedulers that ``diffusion.scheduler`` knows those that keep nothing between steps."""


def split_safe(name: str) -> SplitSafe:
    """The scheduler of that `name`.

    Raises:
        Unsupported: it computes a step from the outputs of earlier ones.
    """
    if name not in SPLIT_SAFE:
        raise Unsupported(
            f"diffusion.scheduler={name}: it keeps the network's outputs of earlier steps, "
            f"which a rank that begins in the middle never had; allowed: {', '.join(SPLIT_SAFE)}"
        )
    return SPLIT_SAFE[name]


class Schedule:
    """The time steps of one scheduler, and its steps from any of them on.

    `beta_schedule` says how noise grows with time, as diffusers' schedulers are told. See
    :class:`SplitSafe` for `together` and `draws`.

    Raises:
        Unsupported: diffusers is not installed, the steps of the scheduler cannot be split, or it
            has no such number of steps.
    """

    def __init__(
        self, name: str, *, steps: int, beta_schedule: Mapping[str, Any], device: torch.device
    ):
        kind = split_safe(name)
        self.together, self.draws = kind.together, kind.draws
        (scheduler_class,) = from_library(
            f"diffusion.scheduler={name}", "diffusers", SCHEDULERS[name]
        )
        betas = beta_schedule if kind.noises_by_beta else {}
        with warnings.catch_warnings():
            # Some hand tensors to numpy in a way that numpy 2 calls deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._template = scheduler_class(**betas, **kind.options)
            try:
                self._template.set_timesteps(steps)
            except ValueError as error:
                raise Unsupported(
                    f"diffusion.denoising_steps={steps}: {name} refuses: {error}"
                ) from error
        # The scheduler computes with numbers on the host, the network takes one on its device.
        self.timesteps: Tensor = self._template.timesteps
        self.on_device: tuple[Tensor, ...] = self.timesteps.to(device).split(1)

    @property
    def total(self) -> int:
        """Evaluations of the network per sample: not always the number of steps asked for."""
        return len(self.timesteps)

    @property
    def initial_scale(self) -> float:
        """The standard deviation of the noise that the first step begins with."""
        return float(getattr(self._template, "init_noise_sigma", 1.0))

    def beginning_at(self, step: int) -> Any:
        """A scheduler of diffusers that has yet to do `step` and those after it."""
        scheduler = copy.copy(self._template)
        if hasattr(scheduler, "set_begin_index"):  # else it goes by the time step alone
            scheduler.set_begin_index(step)
        return scheduler


REMAINDERS: Final = ("first", "last", "spread")
"""Who takes the steps that are left: the first rank, the last, or the first few one each."""

_REFUSE: Final = "refuse"


def steps_of(
    rank: int, *, world_size: int, total: int, remainder: str = _REFUSE, together: int = 1
) -> range:
    """The steps of `rank` among `total`, counted from zero.

    Without a `remainder` they start at ``rank * (total // world_size)``; who takes what is left is
    one of :data:`REMAINDERS`, and ``refuse`` refuses that. As many evaluations as `together` make
    up one step of the solver; ranks part between steps.

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
