"""One small interface to a machine, and its kinds: over SSH, in the lab, this one."""
