"""All-reduce over messages between workers: transports, and topologies over them."""
