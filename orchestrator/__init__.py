"""The controller: an experiment file becomes a plan, the plan becomes runs on hosts."""
