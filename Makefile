# Daily work. The first commands on a new machine are ./run.sh and ./test.sh.
.PHONY: help setup build run test quick check-all bench bench-inference bench-kernels bench-baseline lint format fuzz mutate docs package abi

help: ## List what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## Install what building, testing and linting need
	scripts/setup --tests --lint

build: ## Build everything into build/ (the release preset)
	cmake --preset release && ninja -C build

run: ## Train resnet20 on the embedded data set and evaluate it
	./run.sh

test: ## Build and run all tests; names the ones that are skipped
	./test.sh

quick: ## Build and run the tests of about a minute that find most known mistakes
	./test.sh --quick

check-all: ## All tests in all builds, sanitizers and the whole lint among them (three hours on 2 cores); PARTS="tsan lint"
	scripts/setup --tests --lint && scripts/check_all $(PARTS)

ROUNDS = 3
LEVELS = fp32 bf16
bench: ## Compare with PyTorch, TensorFlow and DALI, table into docs/benchmarks.md; ROWS="resnet50 zoo" LEVELS=avx2 ROUNDS=2
	scripts/setup --peers
	cmake --preset release && ninja -C build trainyard_program
	benchmarks/peers/compare --rounds $(ROUNDS) --levels $(LEVELS) -- $(ROWS)

bench-inference: ## Compare inference with OpenVINO, ONNX Runtime and torch.compile, table into docs/benchmarks.md; CELLS="vit_b_16"
	scripts/setup --peers-inference
	cmake --preset release && ninja -C build trainyard_inference_side trainyard_program
	build/trainyard doctor --limits
	benchmarks/peers/inference $(CELLS)

bench-kernels: build ## Run the benchmark programs and compare with benchmarks/baseline.json by ratio
	scripts/bench_kernels

bench-baseline: build ## Run the benchmark programs and write benchmarks/baseline.json
	scripts/bench_kernels --write

lint: ## Check format, walls between rooms, header trap, compile time, clang-tidy (slow)
	scripts/setup --lint && scripts/lint

format: ## Format all code with clang-format
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

fuzz: ## Run the fuzz targets with clang's libFuzzer, 1,000,000 inputs each
	scripts/setup --fuzz && scripts/fuzz

SINCE = HEAD
MINUTES = 10
mutate: ## Make mistakes in the lines that changed since a commit, list those that no test finds; SINCE=HEAD~3 MINUTES=30
	cmake --preset release
	scripts/mutate --since=$(SINCE) --minutes=$(MINUTES)

docs: build ## Write the generated pages anew (docs/flags.md, docs/api.md), and the reference of the public headers into build/api
	build/trainyard help --markdown > docs/flags.md
	scripts/api_index
	scripts/setup --docs && scripts/api_reference

package: ## Make trainyard and trainyard-dev for Debian 12 and a .tar.xz of both in build/packages
	scripts/setup --package
	cmake --preset release && ninja -C build trainyard_program
	cd build && cpack

abi: ## Write the lists of exported symbols and of public headers' declarations anew
	cmake --preset release && ninja -C build trainyard
	scripts/check_abi --update
