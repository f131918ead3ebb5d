"""Training graphs of PyTorch models: recorded, converted and written. Imported only by processes that use torch."""
