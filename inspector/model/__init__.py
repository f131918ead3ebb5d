"""The trained inspector: configuration, folder, store."""
