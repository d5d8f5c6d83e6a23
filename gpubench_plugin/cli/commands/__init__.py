"""The ``gpubench`` subcommands: one file each, discovered by name."""
