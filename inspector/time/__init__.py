"""Training time: the step time of a workload on any setting, from one model over all measured settings."""
