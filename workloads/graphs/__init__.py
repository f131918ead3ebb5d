"""Training graphs: built, extracted and written without training."""
