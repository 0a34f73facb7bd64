# Arrays over the Wire. `make help` lists the targets.
SITE ?= laptop
PYTHON ?= $(eval PYTHON := $$(shell .ci/python))$(PYTHON)
BIN = .venv/bin
RUN = $(BIN)/wire

.DEFAULT_GOAL := help
.PHONY: help env server ros3 run-all run ledger ledger-check reference links derive book test test-all faults lint audit sbom lock dist publish clean

help:  ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1:/p' Makefile | awk -F: '{printf "make %-12s %s\n", $$1, $$2}'

env: .venv/ready  ## set up the locked environment in .venv/

# Two at once would break one another: the second waits, and then finds it made.
.venv/ready: requirements.lock requirements-uv.lock
	@.ci/place
	@test -n "$(PYTHON)"
	@mkdir -p .cache && exec 9>.cache/env.lock && \
	{ "$(PYTHON)" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null || \
	{ echo ".venv is being set up by another make: waiting for it"; \
	"$(PYTHON)" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'; }; } && \
	$(MAKE) --no-print-directory .venv/made PYTHON="$(PYTHON)"
	@touch $@

# Compiled here once: kernels, workers and services would each do it again at their start wherever
# Python is told to write no bytecode.
.venv/made: requirements.lock requirements-uv.lock
	@echo "setting up .venv with $(PYTHON): some minutes, once"
	@date +%s > .cache/setup-start
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || "$(PYTHON)" -m venv --clear .venv || { echo "error: $(PYTHON) cannot make a virtual environment; allowed: a Python with venv (Debian: apt install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-uv.lock
	@$(BIN)/python -m uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/python .ci/link-checkout
	@$(BIN)/python -m compileall -q src helpers studies runner
	@$(RUN) server
	@echo "{\"seconds\": $$(( $$(date +%s) - $$(cat .cache/setup-start) ))}" > .venv/setup.json
	@touch $@

server: env  ## find the embedded S3 server, or build it once
	@exec $(RUN) server

ros3: env  ## build an h5py with HDF5's own S3 driver, for hdf5-drivers/two-drivers (20 minutes, once)
	@exec sh studies/hdf5_drivers/build_ros3.sh $(BIN)/python "$${ARRAYS_CACHE:-.cache}/ros3"

run-all: env  ## measure the cases of SITE (default laptop) in half an hour, with FLAGS=--all all, then build the book
	@exec $(RUN) run-all --site "$(SITE)" $(FLAGS)

run: env  ## measure one case: make run CASE=cluster-scaling/in-region
	@exec $(RUN) run "$(CASE)" --site "$(SITE)" $(FLAGS)

ledger: env  ## measure what each client requests of the store, version by version
	@for case in request-ledger/versions request-jumps/file-objects request-jumps/groups-and-arrays request-jumps/earthaccess; do $(RUN) run $$case $(FLAGS) || exit 1; done

ledger-check: env  ## measure what the newest clients request, and fail where it is more than the ledger has
	@mkdir -p _build && bash -o pipefail -c '{ $(RUN) ledger check --json > _build/ledger-check.json; a=$$?; \
	$(BIN)/python -m studies.request_ledger.cli --json > _build/ledger-check-chunks.json; exit $$((a | $$?)); } 2>&1 | tee _build/ledger-check.txt; \
	a=$$?; cat _build/ledger-check.json _build/ledger-check-chunks.json; exit $$a'

reference: env  ## measure all cases with all their blocks, the ladder of dilations first, and promote them
	@$(RUN) run-all --site "$(SITE)" --all --more --minutes 60 --ladder-first $(FLAGS)
	@exec $(RUN) publish --site "$(SITE)"

derive: env  ## write the schemas of case files, and the tables of published claims and ratios
	@exec $(RUN) derive

book: env  ## build the book from results that are there
	@exec $(RUN) book --site "$(SITE)"

test: env  ## run the tests, but for the slow ones (10 minutes)
	@exec .ci/test "and not slow"

test-all: env  ## run all tests, those of browsers, gateways, kills and faults too (20 minutes)
	@exec .ci/test

links: book  ## try each link of the book that leads to the web; _build/links.txt lists those that fail
	@$(BIN)/jupyter-book build _build/stage --path-output _build/linked --builder linkcheck --all --quiet > _build/linked.log 2>&1 || true
	@test -e _build/linked/_build/html/output.txt || { tail -3 _build/linked.log; exit 1; }
	@! grep '\[broken\]\|\[timeout\]' _build/linked/_build/html/output.txt | tee _build/links.txt | grep .
	@echo "all links lead somewhere"

faults: env  ## read through every reader from a store that fails, and write results/reference/faults.csv
	@exec $(BIN)/python -m tests.test_faults

lint: env  ## run every check of pre-commit over all files
	@exec $(BIN)/pre-commit run --all-files

.cache/audit/ready: requirements-audit.lock
	@$(BIN)/python -m uv venv --quiet --clear --python $(BIN)/python .cache/audit
	@$(BIN)/python -m uv pip sync --quiet --python .cache/audit/bin/python --require-hashes requirements-audit.lock
	@touch $@

audit: env  ## look for known holes and for licences in what is locked; where no index answers, it says so
	-@$(MAKE) --no-print-directory .cache/audit/ready
	@exec $(BIN)/python .ci/audit.py

sbom: env .cache/audit/ready  ## list what is installed, as CycloneDX, in _build/sbom.cdx.json
	@mkdir -p _build
	@.cache/audit/bin/cyclonedx-py environment --output-reproducible --output-format JSON --output-file _build/sbom.cdx.json $(BIN)/python
	@echo "_build/sbom.cdx.json"

# What the oldest Python gets, all get, so that all measure the same versions.
LOCK = $(BIN)/python -m uv pip compile pyproject.toml --all-extras --python-version 3.12 --no-emit-index-url --no-emit-find-links --quiet

lock: env  ## resolve requirements.lock anew from pyproject.toml
	@$(LOCK) --upgrade --output-file .cache/oldest-python.txt
	@$(LOCK) --constraints .cache/oldest-python.txt --universal --generate-hashes --no-annotate --no-header --upgrade --output-file requirements.lock
	@printf 'cyclonedx-bom\npip-audit\npip-licenses\n' | $(BIN)/python -m uv pip compile - --python-version 3.12 --universal --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links --quiet --upgrade --output-file requirements-audit.lock

dist: env  ## build the source distribution and the wheel into dist/, and try the wheel in an empty environment
	@rm -rf dist
	@$(BIN)/python -m uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	@ARRAYS_TEST_DIST=dist $(BIN)/python -m pytest -q tests/test_wheel.py

publish: env  ## promote the results of SITE to the reference
	@exec $(RUN) publish --site "$(SITE)"

# What git ignores by the list of the project, for records that were sent are not ignored, committed or not.
clean:  ## remove the environment, generated stores, builds and own results
	@top=$$(git rev-parse --show-toplevel 2>/dev/null) && test "$$(cd "$$top" && pwd -P)" = "$$(pwd -P)" || \
	{ echo "error: make clean: $$(pwd -P) is not the top of a git checkout of yours, whose .gitignore says what may go; allowed: there" >&2; exit 2; }; \
	exec git -c core.excludesFile=/dev/null clean -ffdXq -- .venv .cache _build results
