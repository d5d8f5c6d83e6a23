"""A mixture-of-experts layer of our own, and a small model made of it."""

from gpubench_plugin.workloads.moe.workload import MoE

__all__ = ["MoE"]
