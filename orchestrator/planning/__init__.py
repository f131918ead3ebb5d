"""Experiment to ordered runs, and which of them are already done."""
