"""Layers of a graph network, one to a file with its formula, and the recurrent cell between them."""
