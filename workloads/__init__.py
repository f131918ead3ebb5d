"""What runs on a host to train."""
