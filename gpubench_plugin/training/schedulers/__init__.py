"""Schedules of the learning rate: one module each, a subclass of `base.Schedule`."""
