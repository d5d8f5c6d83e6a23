"""What a run finds on its machine: devices, hardware, code, processes, files."""
