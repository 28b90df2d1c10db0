# Everything starts here: `make course` and `make test` need only Python 3.11, pip and git.
# `make` alone lists the targets.

# One thread each: tests, kernels and builds run side by side, and share the cores better that way.
export OMP_NUM_THREADS ?= 1
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Tests start Python hundreds of times: what it has compiled is kept.
unexport PYTHONDONTWRITEBYTECODE
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)

# The environment is set up once for each state of the files that say what is in it.
PINS := requirements.txt package-lock.json pyproject.toml
READY := .venv/.ready-$(firstword $(shell cat $(PINS) | cksum))

.DEFAULT_GOAL := help
.PHONY: help course test check lint book pdf serve bench notebooks

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

course: $(READY) ## set up, build the book, grade a sample class, say where to look
	course sync --check
	course release
	course build
	python tools/sample_class.py

test: $(READY) lint ## everything that can be tested: code, pages in a browser, solutions
	@tools/system-packages
	pytest -n $(JOBS) --dist loadfile --nbval --nbval-sanitize-with tests/nbval_sanitize.cfg tests solutions

check: $(READY) lint ## what one runs while working, under two minutes
	pytest -n $(JOBS) --dist loadfile -m "not browser and not slow" tests

lint: $(READY)
	ruff check
	ruff format --check

book: $(READY) ## build the pages into _build/html
	course build

pdf: $(READY) ## build the pages and print them with Chromium, one by one and as a whole, into _build/pdf
	course build --pdf

serve: $(READY) ## build the pages and serve them on this machine
	course serve

bench: $(READY) ## measure speed and memory (an hour), into benchmarks/*.json
	course fetch-models
	python benchmarks/grading.py
	python benchmarks/cluster.py
	python benchmarks/transformer.py
	python benchmarks/live_model.py
	course build
	python benchmarks/page_weight.py

notebooks: $(READY) ## write the declarations into solutions/, and notebooks/ from solutions/
	course sync
	course release

$(READY):
	@python="$$(tools/find-python)" && "$$python" tools/environment.py
	@rm -f .venv/.ready-* && touch $@
