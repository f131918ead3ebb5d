"""Training with PyTorch: the start of a job, its input, its step loops. Imported only by processes that use torch."""
