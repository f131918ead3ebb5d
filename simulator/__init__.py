"""Simulates a training job by mechanism: op times, links, servers and barriers, as samplers would see them."""
