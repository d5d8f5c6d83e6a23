"""Dispatchers: how tokens travel to the ranks of their experts and back."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.moe.dispatchers.base import Local
from gpubench_plugin.workloads.moe.dispatchers.between_ranks import AllGather, AllToAll

if TYPE_CHECKING:
    from gpubench_plugin.workloads.moe.dispatchers.base import Dispatcher
    from gpubench_plugin.workloads.moe.groups import ParallelGroups, Placement


def require_flex() -> None:
    """Refuse the dispatcher of DeepEP's or HybridEP's fused kernels, which were never tested.

    Raises:
        Unsupported: the library is missing, or installed but not supported.
    """
    if find_spec("deep_ep") is None:
        raise Unsupported(
            "moe.dispatcher=flex requires DeepEP or HybridEP; install deep_ep from "
            "https://github.com/deepseek-ai/DeepEP (HybridEP is its branch hybrid-ep) with a "
            "CUDA build of torch, or use all-to-all"
        )
    raise Unsupported(
        "moe.dispatcher=flex: deep_ep is installed but not supported by this version of "
        "gpubench; use all-to-all"
    )


_BETWEEN_RANKS: Final[dict[str, type[AllGather | AllToAll]]] = {
    "all-gather": AllGather,
    "all-to-all": AllToAll,
}


def dispatcher_for(name: str, placement: Placement, groups: ParallelGroups) -> Dispatcher[Any]:
    """The dispatcher named by ``moe.dispatcher``; auto: local, or all-to-all between ranks.

    Raises:
        Unsupported: it does not fit the number of ranks that share the experts, or is flex.
    """
    expert = groups.expert
    if name == "flex":
        require_flex()
    if name == "auto":
        name = "local" if expert.group is None else "all-to-all"
    if name == "local":
        if expert.group is not None:
            raise Unsupported(
                f"moe.dispatcher=local sends no tokens to other ranks, but {expert.size} "
                "ranks share the experts; use all-gather or all-to-all, or "
                "moe.expert_parallel=1"
            )
        return Local(placement)
    if expert.group is None:
        raise Unsupported(
            f"moe.dispatcher={name}: a single rank holds all experts; use local, or more ranks"
        )
    return _BETWEEN_RANKS[name](placement, expert.group)
