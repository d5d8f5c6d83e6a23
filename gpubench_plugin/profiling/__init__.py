"""Looking inside a step, apart from measuring it."""
