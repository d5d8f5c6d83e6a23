"""Optimizers: one module each, a subclass of `base.OptimizerBuilder`."""
