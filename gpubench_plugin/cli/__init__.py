"""The command `gpubench`."""
