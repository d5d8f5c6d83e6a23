"""The ranks: who they are, how they meet, what they agree on, and how they share the work."""
