"""Sessions that torchrun starts: one per rank, in step, which end together or fail together."""
