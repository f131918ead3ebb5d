"""Run directories to aligned time series."""
