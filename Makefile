# One word per task, the same here and in CI. Each word sets up what it needs by itself (scripts/setup.py, into .venv).

PYTHON ?= python3
V := .venv/bin
SETUP = @command -v $(PYTHON) >/dev/null || { echo "setup: Python 3.11 or newer is needed: apt-get install python3" >&2; exit 1; }; \
	$(PYTHON) scripts/setup.py

# As many runners as cores; what failed is run once more, alone. Runners have no terminal: --pdb and -s need ARGS="-n0 ...".
TESTS = $(PYTHON) scripts/run_tests.py

# pytest's 5, "no test was collected", is right where ARGS choose tests of one environment only.
NONE_CHOSEN = $(if $(ARGS),|| [ $$? -eq 5 ])

.PHONY: help install demo check test whole servers test-slow test-cluster test-clients test-browser test-emulated wheels test-wheels release changelog fuzz fuzz-torch bench docs site tutorials sheet pins format
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install:  ## the environment and the native core, in .venv
	$(SETUP)

demo:  ## pack photographs, load them, train on them, resume (ARGS="--images DIR --quick")
	$(SETUP) --torch
	@$(V)/penstock demo $(ARGS)

check:  ## lint, types (of the package, and as users see them), layers, stubs, budgets, clippy, formatting
	$(SETUP) --frameworks
	$(V)/ruff check
	$(V)/ruff format --check
	$(V)/mypy
	@scripts/types.sh
	$(V)/lint-imports --no-logo
	$(V)/python native/stubs.py --check
	$(V)/python scripts/house.py
	cargo clippy --quiet --locked --all-targets -- -D warnings
	cargo fmt --check

format:  ## let the formatters write
	$(SETUP)
	$(V)/ruff check --fix --select I --quiet
	$(V)/ruff format
	cargo fmt

test:  ## the native core's tests, then the package's, then every example of the documentation (PACKAGE=stores/hdf5: only its own)
	$(SETUP) $(if $(PACKAGE),--package $(PACKAGE),--frameworks)
	$(if $(PACKAGE),,cargo test --quiet --locked --package penstock-core)
	@$(TESTS) $(if $(PACKAGE),--package $(PACKAGE)) $(ARGS)

whole:  ## all that `make check` and `make test` leave out, word by word, with a table at the end (ARGS="site test-slow")
	@$(PYTHON) scripts/whole.py $(ARGS)

servers:  ## build the servers that tests of object storage and MongoDB run against; what cannot be built is said and skipped
	$(SETUP)
	@cargo build --release --locked --quiet --manifest-path tests/servers/s3/Cargo.toml || echo "tests of object storage are skipped"
	@PYTHONPATH=. $(V)/python -m tests.servers.go_programs versitygw
	@PYTHONPATH=. $(V)/python -m tests.servers.go_programs mongo

test-slow:  ## the long ones: kills at random moments, more mutations and examples, fuzzing
	$(SETUP) --frameworks
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-explore} $(TESTS) -m "slow and not cluster" $(ARGS)

test-cluster:  ## workers and packing on Ray
	$(SETUP) --frameworks
	@$(TESTS) -n 1 -m cluster tests/workers/ray tests/pack/on_ray tests/conformance/test_workers.py $(ARGS)

test-clients:  ## other libraries' training loops, with torch's loader and with ours (tests/clients)
	$(SETUP) --clients
	@$(TESTS) --python .venv-clients/bin/python --timeout 300 tests/clients --deselect tests/clients/test_launchers.py $(ARGS) $(NONE_CHOSEN)
	@$(TESTS) --python .venv-clients/bin/python -n 0 --timeout 300 tests/clients/test_launchers.py $(ARGS) $(NONE_CHOSEN)
	@$(TESTS) --python .venv-composer/bin/python -n 0 --timeout 300 tests/clients/composer $(ARGS) $(NONE_CHOSEN)

test-browser:  ## the pages of `penstock view` in headless Chromium, by mouse and by keys
	$(SETUP) --site
	@$(TESTS) --python .venv-site/bin/python --timeout 300 tests/browser $(ARGS)

test-emulated:  ## the native core's tests on arm64 and on x86-64 without AVX2, by qemu
	@scripts/emulated.sh

wheels:  ## wheels for x86-64 and arm64 in dist/, for glibc 2.17 or newer and for musl
	@scripts/wheels.sh

test-wheels: wheels  ## install this machine's wheel without Rust, on old and new Pythons; run arm64's under qemu; load musl's
	@.venv-wheels/bin/python scripts/check_wheels.py

release:  ## all that is uploaded, in dist/, built twice, compared and checked on every Python; prints the commands that upload
	@scripts/release.sh

changelog:  ## show the next section of CHANGELOG.md (VERSION=0.2.0 writes it and deletes the fragments)
	@scripts/changelog.sh $(VERSION)

docs:  ## run every example in README.md and docs/
	$(SETUP) --frameworks
	$(V)/python -m pytest README.md docs $(ARGS)

site:  ## the documentation as a site, in site/: spelling, pages, every example, and a look at each page in Chromium
	$(SETUP) --site
	.venv-site/bin/codespell *.md changelog.d docs examples benches penstock
	rm -rf site
	.venv-site/bin/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto --fresh-env -d docs/_build -c docs . site
	@$(TESTS) --python .venv-site/bin/python --timeout 300 tests/site $(ARGS)

tutorials:  ## run the tutorials, and record what their pages show (ARGS="classification ddp")
	$(SETUP) --clients
	$(V)/python scripts/tutorials.py $(ARGS)

sheet:  ## draw docs/contact-sheet.jpg and docs/view.webp anew, the pictures in README.md
	$(SETUP) --site
	$(V)/python scripts/sheet.py
	.venv-site/bin/python scripts/viewer_picture.py

fuzz:  ## throw damaged files at the decoders, their index, fill and records, 60 s each (SECONDS=600 for more)
	$(SETUP)
	@scripts/fuzz.sh $(or $(SECONDS),60)

fuzz-torch:  ## random programs with torch's loader and with penstock's, 60 s (SECONDS=3600 for an hour)
	$(SETUP) --torch
	$(V)/python -m tests.parity.fuzzing --shrink --seconds $(or $(SECONDS),60) $(ARGS)

bench:  ## run every benches/*.py; writes benches/results/<machine>.md
	$(SETUP) --torch
	$(V)/python benches $(ARGS)

pins:  ## compile requirements/*.in to *.txt
	$(SETUP)
	@scripts/pins.sh $(ARGS)
