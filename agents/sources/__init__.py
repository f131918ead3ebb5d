"""Sources: everything that can be sampled, one file each."""
