"""Where results go: the run directory, its journal and its exports.

Only rank zero writes, and it needs no torch for it. A file appears whole or not at all.
"""
