"""torch.compile: its back ends by name, one of our own, and what compiling costs."""
