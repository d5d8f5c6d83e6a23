"""``gpubench ab``: measure base and head alternately in fresh processes, judge by pairs."""
