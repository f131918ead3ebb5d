"""Time series to burst and idle metrics."""
