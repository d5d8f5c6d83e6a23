"""What a machine does to measurements: checks that change nothing, and their findings."""
