"""Reports to look at: pages of one file each, and pictures."""
