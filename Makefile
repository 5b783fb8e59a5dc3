# Everything a newcomer types; `make study` first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# uv, where it is installed, sets up in a fraction of pip's time; both show what they fetch.
ifneq ($(shell command -v uv 2>/dev/null),)
CREATE = uv venv --python "$$(command -v $(PYTHON))" $(VENV)
INSTALL = uv pip install --compile-bytecode --python $(BIN)/python $(WITH)
else
CREATE = $(PYTHON) -m venv $(VENV)
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check $(WITH)
endif

# The versions that the tests last ran with; `make CONSTRAINTS= study` leaves all of them to pip and pyproject.toml.
CONSTRAINTS ?= constraints.txt
WITH = $(CONSTRAINTS:%=--constraint %)
SETUP = cat pyproject.toml $(CONSTRAINTS)

.PHONY: study test test-others test-ray test-slow test-hosts break regression fuzz gpu versions docs lint audit constraints wheel-check clean

study: $(VENV)/.platform
	$(BIN)/topk run letters_quick

# Each of the many processes that tests start would compile all sources anew where an environment says that none are kept.
test test-others test-ray test-slow: export PYTHONDONTWRITEBYTECODE :=

# Both halves at once, for the tests of Ray often wait for its processes; what they say is shown after the others. It
# fails if either does.
test: $(VENV)/.test
	@failed=0; $(MAKE) --no-print-directory -k -j 2 test-others test-ray SAID=$(VENV)/test-ray.txt || failed=1; \
	cat $(VENV)/test-ray.txt; exit $$failed

test-others: $(VENV)/.test
	$(BIN)/python -m pytest --ignore tests/end_to_end -n 2 --dist worksteal -m "not slow and not gpu"

test-ray: $(VENV)/.test
	$(BIN)/python -m pytest tests/end_to_end -n 2 --dist loadfile -m "ray and not slow and not gpu" $(if $(SAID),>$(SAID) 2>&1)

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "slow and not gpu and not hosts"

# Random damage, hostile files and kills, some ten minutes of two cores; each prints its seed, with which it does the same
# again: BREAK_SEED=7 BREAK_CASES=200 BREAK_KILLS=10 make break.
BREAK_SEED ?= $(shell date +%s)
BREAK_CASES ?= 500
BREAK_KILLS ?= 20
break: $(VENV)/.test
	BREAK_SEED=$(BREAK_SEED) BREAK_CASES=$(BREAK_CASES) BREAK_KILLS=$(BREAK_KILLS) \
	$(BIN)/python -m pytest tests -n 2 --dist worksteal -m breaks -rA --timeout 0

# Clusters of several hosts on this machine, by network namespaces, which want root; Ray's jobs, and Slurm where it is
# installed.
test-hosts: $(VENV)/.test
	$(BIN)/python -m pytest tests/end_to_end -m hosts

# Small trials of every loss, network, dataset, condition and part of a recipe, on the CPU and on a GPU if there is one,
# compared with what is stored in benchmarks/regression.csv for the versions of their components; half a minute of two
# cores. REGRESSION=--renew stores results of raised versions and of new trials.
regression: $(VENV)/.test
	$(BIN)/python benchmarks/regression.py $(REGRESSION)

# All that waits for a GPU, in at most ten minutes, and a report; with the set-up where there is one, else with whatever
# $(PYTHON) has: torch, torchvision, numpy, pyarrow, scikit-learn, pytest and hypothesis are enough for most of it. It
# fetches nothing.
gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu.py $(GPU)

# Property tests with fresh seeds and so many examples of each; 1500 are 25 minutes of one core. What one finds goes
# into an @example of its test.
EXAMPLES ?= 1500
fuzz: $(VENV)/.test
	FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests -n 2 --dist worksteal -m "hypothesis and not ray" --hypothesis-profile fuzz --timeout 0

# The tests of what touches Ray, Optuna, MLflow and torch, and a small study, with the oldest and then with the newest
# versions that pyproject.toml allows, each in an environment of its own of 6 GB, which is deleted afterwards.
versions:
	PYTHON=$(PYTHON) .ci/check-versions oldest
	PYTHON=$(PYTHON) .ci/check-versions newest

# The pages of docs/ as a site in docs/_build; a link that leads nowhere, or any other warning, ends it.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs docs/_build

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What public advisories hold against the packages that are installed, by name and version, which it sends to the registry
# that they come from; the tool has an environment of its own. It fails if there is anything, or one could not be looked up.
audit: $(VENV)/.platform $(VENV)/audit/bin/pip-audit
	$(VENV)/audit/bin/python -m pip --python $(BIN)/python freeze --exclude-editable | sed 's/+.*//; / @ /d' >$(VENV)/audit.txt
	$(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off -r $(VENV)/audit.txt $(AUDIT)

$(VENV)/audit/bin/pip-audit: | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit

# Writes constraints.txt anew from what is installed, which the tests should have run with. torch, torchvision and what
# torch brings are left out: which pair fits is a matter of the machine, its GPU and its registry.
constraints: $(VENV)/.test
	{ grep '^#' constraints.txt; $(BIN)/python -c "$$FREEZE" | sort -f; } >$(VENV)/constraints.txt
	mv $(VENV)/constraints.txt constraints.txt

define FREEZE
import re
from importlib.metadata import distributions
for name, version in {(found.name, found.version) for found in distributions()}:
    if not re.match("(torch|torchvision|triton|nvidia-(?!ml-py)|cuda|pip|setuptools|wheel|uv|topk-studies)\\b", name) and "+" not in version:
        print(f"{name}=={version}")
endef
export FREEZE

wheel-check:
	PYTHON=$(PYTHON) .ci/check-wheel

$(BIN)/python:
	$(CREATE)

# Each set-up is marked by a copy of the files that it was made from: one that was only touched, as by changing branches
# back and forth, installs nothing again.
$(VENV)/.platform: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@$(SETUP) | cmp -s - $@ || { echo "Setting up $(VENV): some 6 GB, most of it torch"; $(INSTALL) --editable '.[platform]'; }
	@$(SETUP) >$@

# The tests' processes find the losses' kernels compiled, which takes a minute of one core and is kept beside the sources.
WARM = $(BIN)/python -c "import topk_losses; topk_losses.warm_up()"

$(VENV)/.test: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@$(SETUP) | cmp -s - $@ || { echo "Setting up $(VENV): some 6 GB, most of it torch"; $(INSTALL) --editable '.[platform,test]' && $(WARM); }
	@$(SETUP) | tee $@ >$(VENV)/.platform

$(VENV)/.docs: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@$(SETUP) | cmp -s - $@ || { echo "Setting up $(VENV): some 6 GB, most of it torch"; $(INSTALL) --editable '.[platform,docs]'; }
	@$(SETUP) | tee $@ >$(VENV)/.platform

clean:
	rm -rf $(VENV) dist docs/_build docs/losses/_pictures .mypy_cache .pytest_cache .ruff_cache .hypothesis
