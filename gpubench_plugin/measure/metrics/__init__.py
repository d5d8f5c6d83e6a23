"""Metrics: numbers computed from what was observed; one module per source of metrics."""
