"""Shards: sessions on other nodes, and the session that shows, judges and records them."""
