"""Run directories to datasets: rows, files, splits, parallel execution."""
