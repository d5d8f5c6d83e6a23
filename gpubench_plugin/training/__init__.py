"""Training steps and forward passes as benchmark subjects."""
