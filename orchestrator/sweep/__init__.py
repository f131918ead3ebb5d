"""A sweep: many runs, their order, retries, console and notifications."""
