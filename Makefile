# Daily work. The first commands on a new machine are ./run.sh and ./test.sh.
.PHONY: help setup build run test bench bench-baseline lint format docs

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

bench: build ## Run the benchmarks and compare with benchmarks/baseline.json by ratio
	scripts/bench

bench-baseline: build ## Run the benchmarks and write benchmarks/baseline.json
	scripts/bench --write

lint: ## Check format, walls between rooms, header trap, compile time, clang-tidy (slow)
	scripts/setup --lint && scripts/lint

format: ## Format all code with clang-format
	git ls-files '*.h' '*.cpp' '*.cu' | xargs clang-format -i

docs: build ## Write the generated documentation anew (docs/flags.md)
	build/trainyard help --markdown > docs/flags.md
