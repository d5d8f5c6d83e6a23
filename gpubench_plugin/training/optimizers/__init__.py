"""Optimizers, one per module, subclasses of `base.OptimizerBuilder`."""
