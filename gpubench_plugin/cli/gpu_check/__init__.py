"""``gpubench gpu-check``: what only a GPU can show, in stages with a process each."""
