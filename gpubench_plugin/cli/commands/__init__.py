"""The commands of ``gpubench``: one file each, found by its name."""
