"""The graph network that predicts what a run will do."""
