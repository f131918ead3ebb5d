"""The lab: hosts in network namespaces on this machine, each with a real sshd."""
