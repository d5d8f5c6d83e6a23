"""How the ranks share one model: one module per parallelism, chosen in the configuration."""
