"""Ranks: the world, the process group, the control plane, the reduction."""
