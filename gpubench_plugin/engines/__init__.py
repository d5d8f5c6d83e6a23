"""Engines: where the shards of a session run."""
