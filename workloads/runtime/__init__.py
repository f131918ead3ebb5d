"""The life of a task: job file, cluster, output, watchdog, fork server."""
