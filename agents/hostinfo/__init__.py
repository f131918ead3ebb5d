"""Facts about a host: interfaces, free ports, software, GPUs, link rate."""
