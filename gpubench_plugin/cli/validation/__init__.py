"""Validation of the files that gpubench writes."""
