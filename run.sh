#!/bin/bash
# From a fresh Debian 12 to a trained model: sets up, builds, writes the embedded data set `shapes`, trains resnet20 on it,
# evaluates the checkpoint and says where everything is. Needs bash and apt-get, and root or sudo while something is
# missing. A finished run is kept: the second time it is only evaluated; --fresh trains again.
set -euo pipefail
cd "$(dirname "$0")"
required_percent=95
data=out/shapes
run=out/shapes_resnet20
config=recipes/shapes_resnet20.yaml

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

evaluation=$run/evaluation.txt
build/trainyard eval --config="$config" --data_dir="$data" --train_dir="$run" | tee "$evaluation"
accuracy=$(sed -n 's/.*Accuracy @ 1 = \([0-9.]*\).*/\1/p' "$evaluation" | tail -n 1)

echo
echo "checkpoint:       $(find "$run" -maxdepth 1 -name 'model.ckpt-*' | sort -V | tail -n 1)"
echo "TensorBoard log:  $run ($(find "$run" -name 'events.out.tfevents.*' | wc -l) event files: tensorboard --logdir=$run)"
echo "run summary:      $run/run_summary.json"
if awk -v got="${accuracy:-0}" -v want=$required_percent 'BEGIN { exit !(100 * got >= want) }'; then
  echo "top-1 accuracy:   $accuracy (0.$required_percent is required)"
else
  echo "run.sh: top-1 accuracy is ${accuracy:-not known}, expected at least 0.$required_percent; ./run.sh --fresh trains again" >&2
  exit 1
fi
