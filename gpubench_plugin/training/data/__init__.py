"""Data sources, one per module, subclasses of `base.DataSource`."""
