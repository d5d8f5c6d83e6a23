"""Learning rate schedules, one function each."""
