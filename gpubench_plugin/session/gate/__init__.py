"""Gate in pytest: items that fail on regressions, and their reports."""
