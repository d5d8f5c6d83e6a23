"""The three ways to run: in this process, in a gang of our own, under torchrun."""
