"""Workload of a model, a batch and a loss that a test states itself."""
