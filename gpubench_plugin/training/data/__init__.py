"""Where batches come from: one module per source, each a subclass of `base.DataSource`."""
