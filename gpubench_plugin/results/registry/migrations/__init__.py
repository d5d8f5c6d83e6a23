"""How the tables came to be what they are, step by step; run by Alembic."""
