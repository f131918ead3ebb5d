# Thin: the scripts need no make, so a fresh machine does not either.
.PHONY: check unit demo
check:  ## the whole gate
	scripts/check
unit:  ## the quick tests
	scripts/check tests/unit
demo:  ## the main job on the embedded default
	scripts/demo
