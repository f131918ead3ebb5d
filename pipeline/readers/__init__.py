"""What `driple-metrics` can read: one file a format, each to plain series."""
