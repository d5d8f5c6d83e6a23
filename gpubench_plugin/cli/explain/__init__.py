"""Explanations for ``gpubench explain``, built from files on disk."""
