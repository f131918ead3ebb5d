"""GPU sources, one file per vendor."""
