"""The training step and the forward pass as things to measure, and what they are made of."""
