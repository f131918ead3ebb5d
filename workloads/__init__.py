"""Training on a host: models, strategies, frameworks, and the extraction of graphs."""
