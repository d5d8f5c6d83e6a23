"""One pytest session with benchmarks: its start, its recording, its gate."""
