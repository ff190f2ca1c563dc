# Everything here works on a fresh machine with Python 3.11 or newer, pip and make.

PYTHON ?= python3
# One more than the cores of a small machine: browser tests wait for a third of their time.
WORKERS ?= 3
VENV := .venv
COLAB := .venv-colab
OLDEST := .venv-oldest
ECOSYSTEM := .venv-ecosystem
BASELINE := .venv-0.3
BASELINE_COMMIT := 18314de
BIN := $(VENV)/bin
PINS := tests/constraints.txt
RUNTIME := build/runtime/onnxruntime-web-1.30.0.tgz

LIBRARIES := accelerate diffusers einops fastai kornia lightning monai open-clip-torch peft
LIBRARIES += pytorchvideo segmentation-models-pytorch torchao transformers ultralytics
SAMPLE := ultralytics/yolov8n-cls monai/DenseNet121 transformers/ConvNextV2Model
SAMPLE += transformers/ViTForImageClassification diffusers/UNet2DModel kornia/HardNet

# The virtual environment that a stamp in it is for, its uv, and its tests: a file a worker, but for
# what tests/conftest.py says.
ENV = $(patsubst %/,%,$(dir $@))
INSTALL = $(ENV)/bin/uv pip install --quiet --compile-bytecode --python $(ENV)/bin/python
PYTEST := -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# With the compiled files of hookviz and of the tests, workers and kernels start in half the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lab test test-all test-heavy test-colab test-oldest lint messages face zoo network edits faults fields
.PHONY: against-0.3 ecosystem ecosystem-sample docs bench runtime wheel clean

# Also under -j: the tests take all workers.
.NOTPARALLEL:

lab: $(VENV)/.lab  ## open JupyterLab on the tour
	$(BIN)/python notebooks/open_lab.py

test: $(VENV)/.browser $(RUNTIME)  ## check every feature, in a real browser too: minutes
	$(BIN)/python $(PYTEST) -m "not heavy"

# After `make test`, in the same command, it does the rest: make runs no target twice.
test-all: lint test test-heavy ecosystem-sample test-colab test-oldest  ## run everything there is: 40 minutes

test-heavy: $(VENV)/.browser $(RUNTIME)  ## run only what is heavy by nature, which `make test` leaves out
	$(BIN)/python $(PYTEST) -m heavy

test-colab: $(COLAB)/.browser  ## `make test` with Colab's versions, in the classic Notebook
	$(COLAB)/bin/python $(PYTEST) -W ignore -m "not heavy"

# The documentation quotes the newest versions' messages; others warn of what is gone in newer ones.
test-oldest: $(OLDEST)/.test  ## the same with the oldest versions, but for browser and documentation
	$(OLDEST)/bin/python $(PYTEST) -W ignore -m "not heavy and not browser" --ignore tests/test_docs.py

lint: $(VENV)/.test  ## format, types and names, of Python and TypeScript: a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & mypy=$$!; $(BIN)/basedpyright; right=$$?; wait $$mypy && exit $$right
	cd web && ../$(BIN)/deno lint && ../$(BIN)/deno fmt --check && ../$(BIN)/deno check --quiet

messages: $(VENV)/.test  ## write the browser's types of messages from Python's
	PYTHONPATH=. $(BIN)/python tests/typescript.py

face: $(VENV)/.test  ## bundle web/ into hookviz/static/, which is committed
	$(BIN)/python tests/bundles.py

zoo: $(VENV)/.test  ## check hookviz on every model: about an hour
	$(BIN)/python -m tests.zoo

network: $(VENV)/.test  ## export classifiers for a page and compare each number: half an hour
	$(BIN)/python -W ignore -m tests.zoo.network

edits: $(VENV)/.test  ## check edits on every classifier: about an hour
	$(BIN)/python -m tests.zoo.edits

faults: $(VENV)/.test  ## plant faults in real models, and look for them by diagnose: about an hour
	$(BIN)/python -m tests.zoo.faults.trained
	$(BIN)/python -m tests.zoo.faults

against-0.3: $(VENV)/.test $(BASELINE)/.test  ## compare with 0.3, or only MODELS="resnet18 small/*", or MODELS=all
	$(BIN)/python -m tests.zoo.against $(BASELINE)/bin/python $(foreach name,$(MODELS),'$(name)')

fields: $(VENV)/.test  ## check receptive fields by perturbing pixels: half an hour
	$(BIN)/python -m tests.zoo.fields

ecosystem: $(ECOSYSTEM)/.test  ## check hookviz on models of other libraries: a quarter of an hour
	$(ECOSYSTEM)/bin/python -m tests.zoo.ecosystem

ecosystem-sample: $(ECOSYSTEM)/.test  ## the same on six small models of five libraries; the callbacks
	$(ECOSYSTEM)/bin/python $(PYTEST) -W ignore tests/studies/test_lightning.py tests/studies/test_trainer.py \
	  tests/attribution/test_attention_elsewhere.py tests/view/test_answer_elsewhere.py
	$(ECOSYSTEM)/bin/python -m tests.zoo.ecosystem --fresh --page test-output/ECOSYSTEM.md $(SAMPLE)

runtime: $(RUNTIME)  ## fetch the program that runs a network in a page

docs: $(VENV)/.test  ## build the documentation in build/docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs build/docs

bench: $(VENV)/.browser $(RUNTIME)  ## measure, and write docs/explanation/benchmarks.md: half an hour
	$(BIN)/python -m tests.benchmarks

# Older wheels would be carried along.
wheel: $(BIN)/uv  ## build the package as one file, which can be carried to Colab
	rm -f dist/hookviz-*.whl
	$(BIN)/uv build --quiet --wheel
	@du -h dist/hookviz-*.whl

clean:
	rm -rf $(VENV) $(COLAB) $(OLDEST) $(ECOSYSTEM) $(BASELINE) build dist test-output

%/bin/uv:
	$(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --disable-pip-version-check -c $(PINS) uv

$(VENV)/.lab: $(BIN)/uv pyproject.toml $(PINS)
	$(INSTALL) -c $(PINS) -e '.[lab]'
	touch $@

$(VENV)/.test: $(BIN)/uv pyproject.toml $(PINS)
	$(INSTALL) -c $(PINS) -e '.[browsers,test]'
	touch $@ $(VENV)/.lab

# From nothing each time, so that nothing but Colab's versions is there when hookviz comes.
$(COLAB)/.test: pyproject.toml tests/constraints-colab.txt tests/replica.py
	rm -rf $(COLAB)
	$(MAKE) --no-print-directory $(COLAB)/bin/uv
	$(COLAB)/bin/python tests/replica.py
	touch $@

# Overrides, since torchcam asks for torch 2.4.1 and numpy 1.26.4, but runs with 2.4.0 and 1.26.0.
$(OLDEST)/.test: $(OLDEST)/bin/uv pyproject.toml tests/constraints-oldest.txt
	$(INSTALL) --override tests/constraints-oldest.txt -e '.[test]'
	touch $@

$(ECOSYSTEM)/.test: $(ECOSYSTEM)/bin/uv pyproject.toml $(PINS) tests/constraints-ecosystem.txt
	$(INSTALL) -c $(PINS) --override tests/constraints-ecosystem.txt -e '.[test]' $(LIBRARIES)
	touch $@

# hookviz 0.3 is not on the package index: its wheel is built from this repository's history.
$(BASELINE)/.test: $(BASELINE)/bin/uv $(PINS)
	@git cat-file -e $(BASELINE_COMMIT)^{commit} 2> /dev/null || { \
	  echo "hookviz 0.3 is commit $(BASELINE_COMMIT), which this clone lacks: git fetch --unshallow"; exit 1; }
	rm -rf build/0.3 && mkdir -p build/0.3
	git archive $(BASELINE_COMMIT) hookviz assets pyproject.toml README.md LICENSE | tar -x -C build/0.3
	$(ENV)/bin/uv build --quiet --wheel --out-dir build/0.3 build/0.3
	$(INSTALL) -c $(PINS) timm build/0.3/hookviz-*.whl
	touch $@

$(RUNTIME):
	$(MAKE) --no-print-directory $(VENV)/.test
	$(BIN)/python -m hookviz.export.network.runtime $(@D)

%/.browser: %/.test
	$*/bin/python tests/browser/chromium.py
	touch $@
