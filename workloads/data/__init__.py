"""Batches of examples: synthetic or from the user's files."""
