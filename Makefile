# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet

.PHONY: demo test test-adapters test-napari lint format bench docs gallery clean

# The stamps say which set of packages the environment holds; they are made anew when the lists change.
$(VENV)/installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing slir into $(VENV) (a minute or two the first time)"
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@echo "installing what the tests need"
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	@$(PIP) install --constraint constraints.txt --editable '.[bench]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	@$(PIP) install --constraint constraints.txt --editable '.[docs]'
	@touch $@

# A link to the browser that the tests of the page use.
$(VENV)/chromium: | $(VENV)/installed
	@scripts/install_chromium.sh $@

# napari and Qt, 560 MB, in an environment on top of the other one: their plugins for pytest stay out of the other tests.
# A copy of what is there would be 3 GB; so it looks for what it lacks where the other one keeps it.
NAPARI := $(VENV)/napari
PLUGIN := plugins/napari-slir
$(NAPARI)/installed: $(PLUGIN)/pyproject.toml $(VENV)/installed-dev
	@echo "installing napari and Qt (a minute the first time)"
	@$(BIN)/python -m venv $(NAPARI)
	@$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
		> $$($(NAPARI)/bin/python -c 'import site; print(site.getsitepackages()[0])')/slir-environment.pth
	@$(NAPARI)/bin/python -m pip --disable-pip-version-check --quiet --quiet install \
		--constraint constraints.txt --editable './$(PLUGIN)[test]'
	@scripts/install_qt_libraries.sh $(NAPARI)/bin/python $(NAPARI)/libraries
	@touch $@

demo: $(VENV)/installed
	@$(BIN)/slir demo --out demo

test: $(VENV)/installed-dev $(VENV)/chromium
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

# The adapters with BenchOpt, whose 360 MB are not worth it for every run of the tests.
test-adapters: $(VENV)/installed-dev
	@$(PIP) install --constraint constraints.txt benchopt
	@$(BIN)/python -m pytest tests/test_adapters_*.py

# The napari plugin, without a screen.
test-napari: export QT_QPA_PLATFORM := offscreen
test-napari: $(NAPARI)/installed
	@$(BIN)/mypy $(PLUGIN)/src
	@$(NAPARI)/bin/npe2 validate napari-slir
	@. $(NAPARI)/libraries; cd $(PLUGIN) && ../../$(NAPARI)/bin/python -m pytest

lint: $(VENV)/installed-dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(VENV)/installed-dev
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# make bench DATA=folder: the paper's tables beside ours and the peers; docs/benchmark.md says what the folder holds.
bench: $(VENV)/installed-bench
	@$(BIN)/slir bench paper --data $(DATA) --out bench-results --peers

# The site, in site/: it reads from the folder, without a server or a network.
docs: $(VENV)/installed-docs
	@$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

# The figures of the site and of README.md, from examples/; a few minutes. Richardson–Lucy needs scikit-image.
EXAMPLES := photograph scan enlarge microscopy astronomy own_pictures settings
gallery: $(VENV)/installed-dev
	@for name in $(EXAMPLES); do $(BIN)/python examples/$$name.py --out gallery || exit 1; done
	@cp gallery/*.jpg gallery/*.txt docs/images/

clean:
	rm -rf $(VENV) demo bench-results gallery site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
