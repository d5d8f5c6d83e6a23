"""The ``gpubench`` command line."""
