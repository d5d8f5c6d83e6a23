"""Tests written for pytest-benchmark that count as benchmarks: ``--adopt``.

pytest-benchmark measures them, as it always did, in the process in which an ordinary test runs.
Afterwards what it measured is recorded like a measurement of ours.
"""
