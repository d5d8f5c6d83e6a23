"""Custom mixture-of-experts layer, and a small model using it."""

from gpubench_plugin.workloads.moe.workload import MoE
