"""The world from torchrun's environment, and CPU threads per rank.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.hardware import usable_cores
from gpubench_plugin.environment.redaction import THREADS

SESSION: Final = "GPUBENCH_SESSION"
"""Environment variable by which sessions that use one store in turn differ."""
STORE: Final = "GPUBENCH_STORE"
"""Environment variable with the file in which the ranks of a gang rendezvous."""

_REQUIRED: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_MASTER: Final = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class World:
    """`rank` of `size`, and `local_rank` of `local_size` on this host.

    Source of the variables: https://docs.pytorch.org/docs/stable/elastic/run.html
    """

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    local_size: int = 1

    @property
    def is_root(self) -> bool:
        """Whether this is rank zero, which decides, writes and prints."""
        return self.rank == 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> World:
        """The world set up by torchrun, else a world of one.

        Without ``LOCAL_WORLD_SIZE``, which some launchers do not set, all ranks are on one host.

        Raises:
            UsageProblem: a variable is missing or contradicts the others.
        """
        if not any(name in environment for name in _REQUIRED):
            return cls()
        _require(environment, _REQUIRED)
        size = _number(environment, "WORLD_SIZE", minimum=1)
        local_size = size
        if "LOCAL_WORLD_SIZE" in environment:
            local_size = _number(environment, "LOCAL_WORLD_SIZE", minimum=1, upper_bound=size + 1)
        if size > 1:
            _require(environment, _MASTER)
            _number(environment, "MASTER_PORT", minimum=1, upper_bound=2**16)
        return cls(
            rank=_number(environment, "RANK", upper_bound=size),
            local_rank=_number(environment, "LOCAL_RANK", upper_bound=local_size),
            size=size,
            local_size=local_size,
        )


def _require(environment: Mapping[str, str], names: tuple[str, ...]) -> None:
    missing = [name for name in names if not environment.get(name)]
    if missing:
        known = (*_REQUIRED, *_MASTER)
        present = ", ".join(f"{n}={environment[n]}" for n in known if environment.get(n))
        raise UsageProblem(
            f"environment variable {missing[0]} is missing (set: {present}); start the ranks with "
            "torchrun, or unset the others to run one rank"
        )


def _number(
    environment: Mapping[str, str], name: str, *, minimum: int = 0, upper_bound: int | None = None
) -> int:
    text = environment[name]
    number = int(text) if text.isdecimal() else -1
    if minimum <= number and (upper_bound is None or number < upper_bound):
        return number
    allowed = f"{minimum} or more" if upper_bound is None else f"{minimum} to {upper_bound - 1}"
    raise UsageProblem(f"environment variable {name}={text!r}; allowed: {allowed}")


def threads_per_rank(
    local_ranks: int, *, configured: int | None = None, variables: Mapping[str, str] = {}
) -> int:
    """`configured` threads, else the user's ``OMP_NUM_THREADS``, else a share of the host's cores.

    Of these only those count that containers and ``taskset`` let this process use; a share is at
    least one. `variables` are the user's. Only the first of several numbers (``4,2``, for nested
    parallelism) counts.
    """
    if configured is not None:
        return configured
    number = variables.get(THREADS, "").partition(",")[0].strip()
    if number.isdecimal() and int(number):
        return int(number)
    return max(1, len(usable_cores()) // local_ranks)
