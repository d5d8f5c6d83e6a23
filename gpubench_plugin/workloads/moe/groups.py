"""Process groups of a mixture-of-experts layer: data, expert, tensor; and each rank's experts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import distributed as dist

from gpubench_plugin.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from torch import Tensor

    from gpubench_plugin.config import MoeSection


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The ranks that differ from this one along one direction; it is the one of number `index`.

    `group` is None where this rank is alone.
    """

    size: int = 1
    index: int = 0
    group: dist.ProcessGroup | None = None


@dataclass(frozen=True, kw_only=True)
class ParallelGroups:
    """The process groups of one rank.

    Ranks are numbered tensor first, then expert, then data, as in Megatron-Core: rank =
    (data · experts' size + expert) · tensor's size + tensor. The ranks of `expert` share the
    experts, those of `tensor` each expert's hidden features, those of `data` have the same
    weights. The ranks of `tokens` have different tokens: data and expert together.
    """

    data: Axis = Axis()
    expert: Axis = Axis()
    tensor: Axis = Axis()
    tokens: Axis = Axis()
    made: list[dist.ProcessGroup] = field(default_factory=list)
    """Groups that were made for this, and that :meth:`close` ends."""

    @classmethod
    def of(cls, section: MoeSection, *, rank: int, world_size: int) -> Self:
        """The groups of `rank`; every rank must ask for them, since they are made together.

        Raises:
            Unsupported: the sizes do not divide the number of ranks, or the experts.
        """
        tensor, expert, data = sizes(section, world_size)
        grid = torch.arange(world_size).view(data, expert, tensor)
        made: list[dist.ProcessGroup] = []

        def axis(rows: Tensor, size: int) -> Axis:
            members: list[list[int]] = rows.reshape(-1, size).tolist()
            (index,) = (row.index(rank) for row in members if rank in row)
            return Axis(size=size, index=index, group=_joined(members, rank, world_size, made))

        return cls(
            tensor=axis(grid, tensor),
            expert=axis(grid.transpose(1, 2), expert),
            data=axis(grid.permute(1, 2, 0), data),
            tokens=axis(grid.permute(2, 0, 1), data * expert),
            made=made,
        )

    def close(self) -> None:
        """Leave the groups that were made here."""
        while self.made:
            dist.destroy_process_group(self.made.pop())


def sizes(section: MoeSection, world_size: int) -> tuple[int, int, int]:
    """The sizes of the axes tensor, expert and data on `world_size` ranks.

    Raises:
        Unsupported: they do not divide the number of ranks, or the experts.
    """
    tensor = section.tensor_parallel
    if world_size % tensor:
        raise _not_divided("moe.tensor_parallel", tensor, f"{world_size} ranks", world_size)
    left = world_size // tensor
    expert = section.expert_parallel or left
    if left % expert:
        raise _not_divided("moe.expert_parallel", expert, f"{left} ranks", left)
    if section.experts % expert:
        below, above = section.experts // expert * expert, -(-section.experts // expert) * expert
        nearest = f"{above}" if not below else f"{below} or {above}"
        raise Unsupported(
            f"moe.experts={section.experts}: {expert} ranks cannot take equally many; allowed: "
            f"multiples of {expert}, for example {nearest}, or another moe.expert_parallel"
        )
    return tensor, expert, left // expert


def _not_divided(key: str, value: int, what: str, of: int) -> Unsupported:
    allowed = ", ".join(str(n) for n in range(1, of + 1) if of % n == 0)
    return Unsupported(f"{key}={value}: does not divide {what}; allowed: {allowed}")


def _joined(
    members: Sequence[list[int]], rank: int, world_size: int, made: list[dist.ProcessGroup]
) -> dist.ProcessGroup | None:
    """The group of this `rank` among `members`, which together are all ranks."""
    if len(members[0]) == 1:
        return None
    if len(members[0]) == world_size:
        return dist.group.WORLD
    own = None
    for ranks in members:  # every rank takes part in making every group
        group = dist.new_group(ranks)
        if rank in ranks:
            made.append(group)
            own = group
    return own


@dataclass(frozen=True)
class Placement:
    """The experts in the `order` in which `ranks` take them, equally many each.

    Places are numbered over all ranks: rank r has places r·n to (r + 1)·n − 1. `rank` is this one.
    """

    order: tuple[int, ...]
    ranks: int = 1
    rank: int = 0

    @property
    def experts(self) -> int:
        """The number of experts, and of places."""
        return len(self.order)

    @property
    def per_rank(self) -> int:
        """Experts of each rank."""
        return self.experts // self.ranks

    @property
    def own(self) -> tuple[int, ...]:
        """The experts of this rank, in its order."""
        start = self.rank * self.per_rank
        return self.order[start : start + self.per_rank]

    @cached_property
    def _is_in_order(self) -> bool:
        return self.order == tuple(range(self.experts))

    @cached_property
    def _places(self) -> dict[torch.device, Tensor]:
        return {}

    def places(self, experts: Tensor) -> Tensor:
        """The place of each of `experts`."""
        if self._is_in_order:
            return experts
        if experts.device not in self._places:  # copied to a device once
            places = torch.tensor([self.order.index(e) for e in range(self.experts)])
            self._places[experts.device] = places.to(experts.device)
        return self._places[experts.device][experts]
