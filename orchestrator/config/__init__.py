"""The experiment language: YAML to checked values."""
