"""The graph network: layers, readouts and batching."""
