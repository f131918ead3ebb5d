"""Training loops, transfer, hyper-parameter search and their state."""
