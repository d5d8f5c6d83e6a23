"""Environment of a run: devices, hardware, code, processes, files."""
