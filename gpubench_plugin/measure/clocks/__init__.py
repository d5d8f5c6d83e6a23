"""One clock per way of taking time."""
