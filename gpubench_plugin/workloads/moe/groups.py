"""Process groups of an MoE layer (data, expert, tensor), and expert placement."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import torch
from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.config.sections import MoeSection
from gpubench_plugin.core.errors import Unsupported


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Ranks along one parallel dimension; this rank has `index`. A single rank has no `group`."""

    size: int = 1
    index: int = 0
    group: dist.ProcessGroup | None = None


@dataclass(frozen=True, kw_only=True)
class ParallelGroups:
    """Process groups of one rank, in Megatron-Core's order: tensor varies fastest, then expert.

    The ranks of `expert` share the experts, those of `tensor` each expert's hidden features, those
    of `data` have the same weights, and those of `tokens` (data × expert) different tokens.
    """

    data: Axis = Axis()
    expert: Axis = Axis()
    tensor: Axis = Axis()
    tokens: Axis = Axis()
    created_groups: list[dist.ProcessGroup] = field(default_factory=list)
    """Groups that :meth:`close` destroys."""

    @classmethod
    def of(cls, section: MoeSection, *, rank: int, world_size: int) -> Self:
        """Create the groups of `rank`; must be called on every rank.

        Raises:
            Unsupported: the sizes do not divide the number of ranks, or the experts.
        """
        tensor, expert, data = sizes(section, world_size)
        grid = torch.arange(world_size).view(data, expert, tensor)
        created: list[dist.ProcessGroup] = []

        def axis(rows: Tensor, size: int) -> Axis:
            members: list[list[int]] = rows.reshape(-1, size).tolist()
            (index,) = (row.index(rank) for row in members if rank in row)
            group = None
            if 1 < size == world_size:
                group = dist.group.WORLD
            elif size > 1:  # collective over all ranks
                group, _ = dist.new_subgroups_by_enumeration(members)
                created.append(group)
            return Axis(size=size, index=index, group=group)

        return cls(
            tensor=axis(grid, tensor),
            expert=axis(grid.transpose(1, 2), expert),
            data=axis(grid.permute(1, 2, 0), data),
            tokens=axis(grid.permute(2, 0, 1), data * expert),
            created_groups=created,
        )

    def close(self) -> None:
        """Destroy the groups created here."""
        while self.created_groups:
            dist.destroy_process_group(self.created_groups.pop())


def sizes(section: MoeSection, world_size: int) -> tuple[int, int, int]:
    """Sizes of the tensor, expert and data axes on `world_size` ranks.

    Raises:
        Unsupported: they do not divide the number of ranks, or the experts.
    """
    tensor = section.tensor_parallel
    if world_size % tensor:
        raise _not_divided("moe.tensor_parallel", tensor, world_size)
    remaining_ranks = world_size // tensor
    expert = section.expert_parallel or remaining_ranks
    if remaining_ranks % expert:
        raise _not_divided("moe.expert_parallel", expert, remaining_ranks)
    if section.experts % expert:
        raise Unsupported(
            f"moe.experts={section.experts} is not divisible by {expert} ranks; allowed: "
            f"multiples of {expert}, or another moe.expert_parallel"
        )
    return tensor, expert, remaining_ranks // expert


def _not_divided(key: str, value: int, ranks: int) -> Unsupported:
    allowed = ", ".join(str(n) for n in range(1, ranks + 1) if ranks % n == 0)
    return Unsupported(f"{key}={value} does not divide {ranks} ranks; allowed: {allowed}")


@dataclass(frozen=True)
class Placement:
    """Experts in the `order` of slots; each of the `ranks` has equally many consecutive slots."""

    order: tuple[int, ...]
    ranks: int = 1
    rank: int = 0

    @property
    def experts(self) -> int:
        """Number of experts and slots."""
        return len(self.order)

    @property
    def per_rank(self) -> int:
        """Number of experts that each rank has."""
        return self.experts // self.ranks

    @property
    def own_experts(self) -> tuple[int, ...]:
        """Experts of this rank in order."""
        start = self.rank * self.per_rank
        return self.order[start : start + self.per_rank]

    @cached_property
    def _is_in_order(self) -> bool:
        return self.order == tuple(range(self.experts))

    @cached_property
    def _slot_tensors(self) -> dict[torch.device, Tensor]:
        return {}

    def slots(self, experts: Tensor) -> Tensor:
        """Slots in which the `experts` lie, of all slots over the ranks."""
        if self._is_in_order:
            return experts
        if experts.device not in self._slot_tensors:  # copied to a device once
            slot_of_expert = torch.tensor([self.order.index(e) for e in range(self.experts)])
            self._slot_tensors[experts.device] = slot_of_expert.to(experts.device)
        return self._slot_tensors[experts.device][experts]
