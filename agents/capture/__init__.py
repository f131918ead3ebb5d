"""Packet headers of an interface: the kernel's ring, the file of a running capture, sealing."""
