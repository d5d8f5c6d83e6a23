"""Shared code of micro benchmarks: checks, layouts, observers."""
