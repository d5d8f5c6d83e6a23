"""Comparing and judging: limits, matching of runs, statistics, verdicts. Knows no files."""
