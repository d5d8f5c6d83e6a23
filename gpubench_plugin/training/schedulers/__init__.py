"""Schedules of the learning rate, one function each."""
