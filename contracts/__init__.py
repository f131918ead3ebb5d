"""The shared vocabulary: what every room means by a setting, a run, a trace. Standard library only."""
