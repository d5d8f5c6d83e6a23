"""One pytest session with benchmarks: its mode, its recording, its gate."""
