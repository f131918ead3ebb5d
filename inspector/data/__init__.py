"""Datasets to the examples, features and tensors that models take."""
