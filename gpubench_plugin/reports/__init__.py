"""What a person reads of a run: pure functions from records to text."""
