"""Collectives to measure, one per module, with the conventions of nccl-tests."""
