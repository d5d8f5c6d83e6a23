"""Results: run directories, journals and exports.

Only rank zero writes, and it needs no torch for it. A file appears whole or not at all.
"""
