"""Files, processes and signals of the operating system."""
