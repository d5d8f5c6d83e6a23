"""Comparison and judgement: limits, run matching, statistics, verdicts; no file access."""
