"""Adoption of pytest-benchmark tests as benchmarks (``--adopt``).

pytest-benchmark measures them as usual, in the process of an ordinary test; its results are
recorded like measurements of our own.
"""
