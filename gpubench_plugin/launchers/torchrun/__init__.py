"""torchrun sessions: one per rank, in lockstep."""
