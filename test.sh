#!/bin/bash
# Sets up, builds and runs all tests. Needs bash and apt-get (Debian 12), and root or sudo while something is missing.
# `--isa avx2` or `--isa avx512`, as the first argument, runs them as on a processor that has no higher instruction sets.
# Extra arguments go to ctest, e.g. ./test.sh -R Checkpoint
set -euo pipefail
cd "$(dirname "$0")"

if [[ ${1:-} == --isa ]]; then
  if [[ ! ${2:-} =~ ^(avx2|avx512)$ ]]; then
    echo "./test.sh: --isa takes avx2 or avx512, not '${2:-}'" >&2
    exit 2
  fi
  export TRAINYARD_MAX_CPU_ISA=$2
  shift 2
fi
scripts/setup --tests
cmake --preset release
ninja -C build
status=0
ctest --test-dir build -j2 --output-on-failure --no-tests=error --output-junit tests.xml "$@" || status=$?
scripts/report_tests build/tests.xml tests/allowed_skips.txt release || status=1
exit $status
