"""Probes beside the timing: memory, FLOPs, device state."""
