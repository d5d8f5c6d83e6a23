"""Waiting for a device."""

from __future__ import annotations

import torch


def wait_for(device: torch.device) -> None:
    """Return once everything queued on `device` is done; a CPU has no queue."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
