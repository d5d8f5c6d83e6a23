"""Section ``engine``: where and how the shards of ``--on`` run; not part of what is measured."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpubench_plugin.config.section import Section

_Count = Annotated[int, Field(gt=0)]


class SlurmSection(Section):
    """What ``sbatch`` is given; without a value SLURM's own default holds."""

    partition: str | None = None
    """Partition, ``--partition``."""
    account: str | None = None
    """Account that is charged, ``--account``."""
    gres: str | None = None
    """Generic resources of each node, ``--gres``, for example ``gpu:8``."""
    time: str | None = None
    """Time limit of a job, ``--time``: minutes, or ``H:MM:SS``."""
    arguments: tuple[str, ...] = ()
    """Further options of ``sbatch``, for example ``[--qos=low, --constraint=h100]``."""


class EngineSection(Section):
    """Where and how the shards of ``--on`` run."""

    shards: _Count | None = None
    """Number of shards; null: one for each slot of the engine."""
    nodes: _Count = 1
    """Nodes of one shard; on several, torchrun starts the ranks."""
    ranks_per_node: _Count = 1
    """Ranks that torchrun starts on each of several nodes."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often a benchmark is begun again whose node was lost, or whose time was up."""
    slurm: SlurmSection = SlurmSection()
    """What ``sbatch`` is given, with ``--on=slurm``."""
