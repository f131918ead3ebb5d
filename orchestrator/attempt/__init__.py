"""One attempt at a run: prepare, start, monitor, stop, fetch."""
