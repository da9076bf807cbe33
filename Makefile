# One word each, the same for a person and for CI. `make demo` and `make test` set everything up by themselves: `make demo` installs
# what fewpass runs with, `make test` adds its tools to the same environment.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev,evaluation
BIN := $(VENV)/bin
# Each of the many processes of the tests would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
CORE := $(VENV)/.core
READY := $(VENV)/.ready
UV := $(shell command -v uv || echo build/uv/bin/uv)

.PHONY: demo test test-slow pythons browser screenshots faults soak fuzz check docs kernels bench scoreboard scale papers serve clean setup interchange container-test audit sbom load

setup: $(READY)

# uv installs in a tenth of pip's time. pip fetches it into build/, and does the work itself where uv cannot.
define install
	@echo "installing $(2) into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --target build/uv uv \
		|| echo "no uv: pip installs, which takes minutes"
	@$(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '$(1)' \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '$(1)'
	@touch $@
endef

$(CORE): pyproject.toml constraints.txt
	$(call install,.,what fewpass runs with)

$(READY): pyproject.toml constraints.txt
	$(call install,.[$(EXTRAS)],fewpass and the tools of its tests)
	@touch $(CORE)

demo: $(CORE)
	@$(BIN)/fewpass demo

# TESTS=tests/storage: only some, and of these all.
test: $(READY)
	$(BIN)/fewpass precompile
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(or $(TESTS),--tier fast -p no:schemathesis)

# What is slow by nature (tests/conftest.py lists it), in a browser where one can be had, and a part of the tests under other Pythons.
test-slow: $(READY) browser
	$(BIN)/fewpass precompile
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --tier slow
	@$(MAKE) pythons TESTS="tests/fewpass tests/estimators tests/storage tests/service/cli"

# The same tests, or TESTS, under other releases of Python, where they are at hand.
pythons:
	@for python in python3.12 python3.13; do \
		if $$python -c '' 2>/dev/null; then $(MAKE) test PYTHON=$$python VENV=build/$$python EXTRAS=dev || exit 1; else echo "no $$python here"; fi; \
	done

# Debian's Chromium for the tests of the console, where apt is at hand; without a browser those tests are skipped.
browser:
	@command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
		&& apt-get update -q && apt-get install -y -q --no-install-recommends chromium; } \
		|| echo "no Chromium, and no way to install it: the tests in a browser will be skipped"

# The pictures of the console in docs/how-to, taken by a browser.
screenshots: $(READY) browser
	$(BIN)/python docs/screenshots.py

# Each promise under every fault instead of a seeded sample: hours of killing and waiting, before a release.
faults: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m faults
	FEWPASS_TEST_EDGES=1 $(BIN)/python -m pytest tests/service/http/test_schemathesis.py

# The tests beside MLflow, a generator of clients, pgmpy and pyAgrum, in environments of their own: they ask for other
# releases than our pins, or bring much else.
interchange: $(READY)
	$(PYTHON) -m venv build/mlflow
	sed '/^cachetools=/d; /^importlib_metadata=/d' constraints.txt > build/mlflow/constraints.txt
	build/mlflow/bin/python -m pip install --quiet --disable-pip-version-check --constraint build/mlflow/constraints.txt \
		--editable '.[mlflow]' hypothesis pandas pytest pytest-timeout
	build/mlflow/bin/python -m pytest -m 'faults or not faults' tests/fewpass/test_mlflow.py
	$(PYTHON) -m venv build/generator
	build/generator/bin/python -m pip install --quiet --disable-pip-version-check openapi-python-client
	PATH="$(CURDIR)/build/generator/bin:$$PATH" $(BIN)/python -m pytest tests/service/http/test_generated_client.py
	$(PYTHON) -m venv build/networks
	build/networks/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[structures]' hypothesis pyagrum pytest pytest-timeout
	build/networks/bin/python -m pytest -m faults tests/registry/test_discrete_networks.py

# An hour of predictions, trainings, promotions and queries: no error, and memory, descriptors and threads stay flat.
soak: $(READY)
	$(BIN)/python -m load_tests.soak

# An hour of damaged input to every parser of bytes from outside; guided by Atheris where it is installed.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/sphinx-build -q -W --keep-going docs build/site

# The documentation as a site, in build/site.
docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going docs build/site

# Compiles all kernels into an empty folder, and writes and prints their table: tests/kernels/kernels.txt.
kernels: export NUMBA_CACHE_DIR := $(CURDIR)/build/kernels
kernels: $(READY)
	rm -rf $(NUMBA_CACHE_DIR)
	$(BIN)/fewpass precompile
	$(BIN)/python -m tests.kernels.kernel_table

bench: $(READY)
	$(BIN)/python -m benchmarks

# Learning curves on large tables, which take hours; FEWPASS_FLIGHTS is the folder of air_train.parquet and air_test.parquet.
scale: $(READY)
	$(BIN)/python -m benchmarks.scale

# What a user runs, beside the boosting libraries: docs/results/scoreboard.md. `make scoreboard QUICK=1` takes four minutes and writes nothing.
scoreboard: $(READY)
	$(BIN)/fewpass precompile
	$(BIN)/python -m benchmarks.scoreboard $(if $(QUICK),--quick)

# Tables and figures of the papers, again: docs/results/papers. PAPERS="S1 s5-ablation": only some; QUICK=1: few sets and seeds.
papers: $(READY)
	$(BIN)/fewpass precompile
	$(BIN)/python -m benchmarks.papers $(PAPERS) $(if $(QUICK),--quick)

# Builds and runs the image without a Docker engine; needs root, buildah and debootstrap.
container-test:
	tests/container/run.sh

# Needs a network: it asks PyPI's advisory database about every pinned version.
audit: $(READY)
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --disable-pip --no-deps -r constraints.txt

# What a plain install brings, as a CycloneDX list in build/sbom.json. The list is of the pinned versions, in an environment of their own.
sbom:
	rm -rf build/sbom
	$(PYTHON) -m venv build/sbom/install
	build/sbom/install/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt .
	$(PYTHON) -m venv build/sbom/tool
	build/sbom/tool/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	build/sbom/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --gather-license-texts --output-reproducible --output-file build/sbom.json build/sbom/install

load: $(READY)
	$(BIN)/python -m load_tests smoke

serve: $(READY)
	$(BIN)/fewpass serve

clean:
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
