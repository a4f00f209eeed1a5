# Everything installs itself into .venv; nothing touches the network while .venv/.stamp is newer than the constraints.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
BENCH := .venv-bench/.stamp
OUT ?= runs/demo
TRIALS ?= 500
# The suite fills the cores with processes; threads of BLAS beside them would spend more time waiting than computing.
test test-slow: export OPENBLAS_NUM_THREADS = 1
# Slow tests run programs as users have them, not those that compile fastest (tests/conftest.py).
test-slow: export XLA_FLAGS ?=
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow check bench docs dist setup clean

demo: $(STAMP)
	rm -rf $(OUT)
	$(BIN)/moac front resource-gathering-v0 --discount 0.9 --out $(OUT)/front
	$(BIN)/moac train resource-gathering-v0 --trials $(TRIALS) --out $(OUT)/run
	$(BIN)/moac explore deep-sea-treasure-v0 --blackbox --discount 0.99 --steps 100352 --out $(OUT)/explore
	@printf '\nOpen these:\n'
	@printf '  %-32s %s\n' $(OUT)/front/front.png 'the exact Pareto front of resource-gathering' \
	  $(OUT)/run/report.html 'MOAC with $(TRIALS) trials on it: returns, weights, exact gap' \
	  $(OUT)/explore/report.html 'one network for every preference on deep-sea-treasure, beside its exact front'

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python benchmarks/tables.py --check

bench: $(STAMP) $(BENCH)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/tables.py

# The documentation as a site: site/index.html opens from the disk; its search wants a server (python -m http.server -d site).
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Wheel and source distribution; `make test-slow` installs the wheel into an empty environment and uses it.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# The peers we measure ourselves against. Never part of the tests.
$(BENCH): benchmarks/peers.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --upgrade pip
	.venv-bench/bin/python -m pip install --quiet --requirement benchmarks/peers.txt
	touch $@

clean:
	rm -rf $(VENV) .venv-bench runs dist site
