"""The agent daemon: the one process of ours on a host that starts, watches and ends the others."""
