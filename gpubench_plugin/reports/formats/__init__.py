"""How ``gpubench compare`` prints what it found: one file per format, found by its name."""
