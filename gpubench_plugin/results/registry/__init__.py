"""Registry: documents of runs and baselines for ever, and an index of the runs, in one database.

SQLite or PostgreSQL. The index is derived from documents and run directories.
"""
