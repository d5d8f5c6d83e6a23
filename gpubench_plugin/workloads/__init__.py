"""What is trained or inferred: one module per workload, each a subclass of `base.Workload`."""
