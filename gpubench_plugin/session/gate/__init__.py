"""The gate inside pytest: items that fail where a benchmark got worse, and what is said of it."""
