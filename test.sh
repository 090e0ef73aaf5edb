#!/bin/bash
# Sets up, builds and runs all tests. Needs bash and apt-get (Debian 12), and root or sudo while something is missing.
# `--isa avx2` or `--isa avx512`, as the first argument, runs them as on a processor that has no higher instruction sets.
# `--quick`, as the first argument, runs the tests of about a minute on 2 cores that find most known mistakes (tests/quick_tests.txt).
# Extra arguments go to ctest, e.g. ./test.sh -R Checkpoint. TRAINYARD_PRESET names another preset of CMakePresets.json than
# release, e.g. asan-ubsan, which is built and run in its own folder.
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
quick=
if [[ ${1:-} == --quick ]]; then
  if [ $# -gt 1 ]; then
    echo "./test.sh: --quick takes no further arguments, not '$2'" >&2
    exit 2
  fi
  quick=yes
fi
preset=${TRAINYARD_PRESET:-release}
build=build
[ "$preset" = release ] || build=build-$preset
scripts/setup --tests
cmake --preset "$preset"
if [ -n "$quick" ]; then
  scripts/quick_tests.py --programs | xargs ninja -C "$build"
  exec scripts/quick_tests.py --build="$build"
fi
ninja -C "$build"
rm -rf "$build/test_results"
mkdir -p "$build/test_results"  # empty where no test of GoogleTest is asked for
status=0
ctest --preset "$preset" -j2 --no-tests=error --output-junit tests.xml "$@" || status=$?
scripts/report_tests "$build/tests.xml" "$build/test_results" tests/allowed_skips.txt "$preset" || status=1
exit $status
