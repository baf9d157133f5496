# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
comma := ,
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet

.PHONY: demo test fuzz siege test-adapters test-napari lint format bench docs gallery wheel check-wheel test-lowest test-newest api clean

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

$(VENV)/installed-bench: bench/pyproject.toml $(VENV)/installed
	@$(PIP) install --constraint constraints.txt --editable './bench[peers]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	@$(PIP) install --constraint constraints.txt --editable '.[docs]'
	@touch $@

$(VENV)/installed-release: $(VENV)/installed-dev
	@$(PIP) install --constraint constraints.txt --editable '.[release]'
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

test: $(VENV)/installed-release $(VENV)/chromium
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal
	@$(MAKE) --no-print-directory check-wheel

# make fuzz MINUTES=30: damages files and reads them; half of the time by chance, half guided by what is reached.
MINUTES ?= 30
fuzz: $(VENV)/installed-dev
	@$(PIP) install --constraint constraints.txt --editable '.[fuzz]'
	@$(BIN)/python scripts/fuzz.py --minutes $$(($(MINUTES) / 2))
	@$(BIN)/python scripts/fuzz.py --minutes $$(($(MINUTES) / 2)) --guided

# make siege MINUTES=2: fifty clients of `slir serve`, slow and lying ones among them, while its processes are killed.
siege: MINUTES := 2
siege: $(VENV)/installed-dev
	@$(BIN)/python scripts/siege.py --minutes $(MINUTES)

# The adapters with BenchOpt, whose 360 MB are not worth it for every run of the tests.
test-adapters: $(VENV)/installed-dev
	@$(PIP) install --constraint constraints.txt benchopt
	@$(BIN)/python -m pytest tests/test_adapters_*.py
	@$(BIN)/python scripts/peer_tests.py --keep $(VENV)/peers

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

# dist/: the source and, made from it alone, the wheel.
wheel: $(VENV)/installed-release
	@rm -rf dist && mkdir -p build
	@$(BIN)/python -m build --outdir dist . >build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }
	@rm -rf src/slir.egg-info  # it tells of another version than the one that is installed, to whoever looks into src
	@ls dist

# What is in the wheel, and that it works where nothing else is installed.
check-wheel: wheel
	@$(BIN)/python scripts/check_wheel.py dist

# The ends of the range of versions that pyproject.toml allows, by the tests that touch the dependencies. On Linux, PyPI's
# torch brings CUDA (5 GB); with TORCH_INDEX=https://download.pytorch.org/whl/cpu it does not.
# make test-newest PYTHON=python3.13
EXTRAS := fits,zarr,web,codecs
TORCH_INDEX ?=
ENDS := $(foreach name,patches operators psf weights bank tasks noise colour jobs io roundtrip cli_psf web_api,tests/test_$(name).py)
TOOLS := pytest pytest-xdist hypothesis httpx PyWavelets scikit-image scikit-learn
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
# Here the tests' own tools are too old: tifffile misreads a hidden stack, imagecodecs packs no bits.
TOO_OLD := --deselect 'tests/test_roundtrip.py::test_round_trip[shaped-hidden.tif]' --deselect tests/test_io.py::test_tiff_of_few_bits

test-lowest: wheel
	@$(PYTHON) -m venv --clear .venv-lowest
	@$(PYTHON) scripts/lowest.py $(subst $(comma), ,$(EXTRAS)) >.venv-lowest/constraints.txt
	@.venv-lowest/bin/python -m pip --quiet install $(INDEX) --constraint .venv-lowest/constraints.txt "$$(ls dist/*.whl)[$(EXTRAS)]" $(TOOLS)
	@.venv-lowest/bin/python -m pytest -W ignore --hypothesis-profile ci --numprocesses auto $(TOO_OLD) $(ENDS)

test-newest: wheel
	@$(PYTHON) -m venv --clear .venv-newest
	@.venv-newest/bin/python -m pip --quiet install $(INDEX) "$$(ls dist/*.whl)[$(EXTRAS)]" $(TOOLS)
	@.venv-newest/bin/python -m pytest --hypothesis-profile ci --numprocesses auto $(ENDS)

# What the API is; the tests compare with it. Before a release (docs/releases.md).
api: $(VENV)/installed-dev
	@$(BIN)/python scripts/public_api.py >tests/public_api.txt

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest demo bench-results gallery site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
