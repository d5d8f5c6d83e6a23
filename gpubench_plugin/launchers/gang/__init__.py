"""Gangs: worker processes, one per rank, driven by one pytest process."""
