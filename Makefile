# Names for the steps of deploy/test.sh; that script is what counts.

STEPS := install format lint imports types unit docs compiled real timed speed

.PHONY: all demo playground fix $(STEPS)

all:
	bash deploy/test.sh

$(STEPS):
	bash deploy/test.sh $@

demo:
	bash deploy/demo.sh

playground:
	bash deploy/playground.sh

fix:
	.venv/bin/ruff format . && .venv/bin/ruff check --fix .
