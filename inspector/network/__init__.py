"""The graph network: layers, readouts, batching, native kernels."""
