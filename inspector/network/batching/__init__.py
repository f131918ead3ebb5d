"""Batches of graphs, and the two ways to sum over neighbours: dense matrices, and DGL."""
