"""Launchers: in this process, in a gang of worker processes, or under torchrun."""
