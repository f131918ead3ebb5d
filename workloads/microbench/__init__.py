"""Micro-benchmark of a machine: times of single ops, of parameter-server transfers and of copies to a GPU."""
