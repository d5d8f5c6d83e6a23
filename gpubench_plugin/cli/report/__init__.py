"""What ``gpubench report`` gathers."""
