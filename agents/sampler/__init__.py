"""The sampler: reads all sources at each tick and writes them to a trace."""
