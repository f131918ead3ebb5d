"""Training strategies, one file or a few each, behind the interface in base.py."""
