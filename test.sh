#!/bin/bash
# Sets up, builds and runs all tests. Needs bash and apt-get (Debian 12), and root or sudo while something is missing.
# Extra arguments go to ctest, e.g. ./test.sh -R Checkpoint
set -euo pipefail
cd "$(dirname "$0")"

scripts/setup --tests
cmake --preset release
ninja -C build
status=0
ctest --test-dir build -j2 --output-on-failure --no-tests=error --output-junit tests.xml "$@" || status=$?
scripts/report_tests build/tests.xml tests/allowed_skips.txt release || status=1
exit $status
