#!/bin/bash
# From a fresh Debian 12 to a trained model: sets up, builds, writes the embedded data set `shapes`, trains resnet20 on it,
# evaluates the checkpoint and says where everything is. Needs bash and apt-get, and root or sudo while something is
# missing. A finished run is kept: the second time it is only evaluated; --fresh trains again.
set -euo pipefail
cd "$(dirname "$0")"
required_percent=95
data=out/shapes
run=out/shapes_resnet20
config=configs/shapes_resnet20.yaml

case "${1:-}" in
  "") ;;
  --fresh) rm -rf "$run" ;;
  *) echo "run.sh: unknown argument $1; known: --fresh" >&2; exit 2 ;;
esac

scripts/setup
cmake --preset release
ninja -C build trainyard_program

# Each step's marker is written when it is complete, so that an interrupted one is done again.
mkdir -p out
if [ ! -f "$data/.complete" ]; then
  rm -rf "$data"
  build/trainyard data make-shapes --output="$data"
  touch "$data/.complete"
fi
if [ -f "$run/.complete" ]; then
  echo "run.sh: $run holds a finished run; evaluating it (./run.sh --fresh trains again)"
else
  build/trainyard train --config="$config" --data_dir="$data" --train_dir="$run"
  touch "$run/.complete"
fi

build/trainyard eval --config="$config" --data_dir="$data" --train_dir="$run" | tee "$run/eval.txt"
