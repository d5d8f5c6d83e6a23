"""What numbers are computed in: one module per precision, chosen by ``--precision``."""
