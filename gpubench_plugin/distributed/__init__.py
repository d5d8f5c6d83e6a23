"""Ranks: world, rendezvous, process group, control plane, and reduction of results."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.distributed.control_plane import CHUNK, ControlPlane, Traffic
    from gpubench_plugin.distributed.process_group import (
        ProcessGroup,
        RankAgreement,
        backend_for,
        backend_refusal,
        rank_device,
    )
    from gpubench_plugin.distributed.rank_report import (
        BLOCKS,
        DURATIONS,
        LIMIT_BYTES,
        WARMUPS,
        RankReport,
        condense,
    )
    from gpubench_plugin.distributed.ranks import RankSession
    from gpubench_plugin.distributed.reduction import RankAggregate, Reduction
    from gpubench_plugin.distributed.rendezvous import store_for
    from gpubench_plugin.distributed.timed_collective import (
        TimedCollective,
        exchange,
        free_bytes,
        parse,
    )
    from gpubench_plugin.distributed.world import LISTENER, World, threads_per_rank

__getattr__ = lazy_names(__name__)
