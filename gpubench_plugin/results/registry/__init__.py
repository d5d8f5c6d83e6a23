"""Registry: an index of run directories in SQLite or PostgreSQL.

It can be rebuilt from them at any time.
"""
