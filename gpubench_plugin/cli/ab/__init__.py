"""``gpubench ab``: base and head measured in turns by fresh processes, and judged pair by pair."""
