"""What is observed besides time: memory, floating-point operations, the state of the device."""
