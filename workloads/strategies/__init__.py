"""Training strategies: parameter server and all-reduce."""
