"""What every room shares: records, errors, flags, the catalog, hook specifications."""
