"""Readers of the trace formats of driple-metrics, one module each."""
