"""Migrations, one file each."""
