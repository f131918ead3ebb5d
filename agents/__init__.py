"""Programs that run on a host: the agent daemon and the sampler."""
