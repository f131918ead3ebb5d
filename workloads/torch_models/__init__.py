"""Models of the zoo in torch.nn, with the weights of those in workloads/models."""
