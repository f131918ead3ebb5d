"""Requests to predictions, and their presentation."""
