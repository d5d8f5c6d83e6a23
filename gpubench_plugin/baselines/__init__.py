"""Baselines, and the earlier runs that serve as their samples."""
