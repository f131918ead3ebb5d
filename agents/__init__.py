"""What runs on a host to sample it."""
