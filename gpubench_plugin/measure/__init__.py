"""Measuring: the loop, stopping rules, clocks, and probes."""
