"""Traces and graphs become datasets."""
