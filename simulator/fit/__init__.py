"""Fits of the parameters to measurements."""
