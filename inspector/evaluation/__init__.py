"""Scores of an inspector beside the baselines, on the same rows."""
