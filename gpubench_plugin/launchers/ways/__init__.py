"""Launchers: the ways in which the ranks of benchmarks are started, one module each."""
