"""What ranks exchange: one module per collective, each measured as nccl-tests measures it."""
