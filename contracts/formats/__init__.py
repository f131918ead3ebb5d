"""File formats: names, schema versions and validation of every file that two packages share."""
