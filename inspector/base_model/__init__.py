"""Regressors on workload features that the graph network corrects."""
