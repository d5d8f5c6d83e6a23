"""The registry: an index over run directories, in SQLite or PostgreSQL.

The run directories are the truth; all that is stored here can be rebuilt from them. Nothing is
exported here, since the database's libraries cost a quarter of a second to import.
"""
