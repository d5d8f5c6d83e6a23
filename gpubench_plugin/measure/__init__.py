"""Measuring: the loop, its rules, the clocks, and the probes beside them."""
