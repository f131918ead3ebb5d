"""Deep-learning frameworks, one file each, behind the interface in base.py."""
