"""What the benchmarks of single operations share: checks, layouts, observers."""
