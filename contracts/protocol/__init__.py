"""Every message between processes, typed on both sides."""
