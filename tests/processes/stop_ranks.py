#!/usr/bin/env python3
"""Stops trainings of several processes by signals at random moments, and looks whether all ranks end after the same step,
with the same exit code, and with a checkpoint from which the same command goes on to the bits of a run that was not stopped.

Usage: tests/processes/stop_ranks.py PROGRAM [--runs=50] [--seed=1]

Signals go to rank 0, to another rank, to all of them, or, SIGUSR1, to mpirun, which hands it on.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

STOPPED = 75
STEPS = 400  # of a millisecond or two: mpirun takes a tenth of a second to hand a signal on
FLAGS = ["train", "--device=cpu", "--model=trivial", "--data_name=cifar10", "--synthetic", "--batch_size=2", "--num_warmup_batches=0", "--display_every=10",
         "--deterministic", "--num_intra_threads=1", "--variable_update=horovod", f"--num_batches={STEPS}", "--log_level=info",
         "--init_learning_rate=0.01"]
# Says which process a rank is and what it ended with, which mpirun keeps to itself.
RANK = 'echo "rank $OMPI_COMM_WORLD_RANK is $$"; "$@" & child=$!; echo "rank $OMPI_COMM_WORLD_RANK runs $child"; ' \
       'trap : TERM USR1; wait $child; code=$?; while kill -0 $child 2>/dev/null; do wait $child; code=$?; done; ' \
       'echo "rank $OMPI_COMM_WORLD_RANK ends $code"; exit $code'


def environment():
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1"}


def mpirun(ranks, command):
    # Without recovery mpirun sends SIGTERM to the others when the first one has ended, and that is their second one.
    return ["mpirun", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), "bash", "-c", RANK, "rank", *command]


def stop(command, target, line, choose, signals=(signal.SIGTERM, signal.SIGUSR1), env=None):
    """Sends signals to the ranks after a line that begins so. Returns the output, the exit codes by rank, and whether one was sent."""
    child = subprocess.Popen(command, env=env or environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True)
    lines, processes, sent = [], {}, False
    for said in child.stdout:
        lines.append(said)
        if found := re.search(r"rank (\d+) runs (\d+)", said):
            processes[int(found[1])] = int(found[2])
        if not sent and said.startswith(line):
            sent = True
            time.sleep(choose.uniform(0, 0.02))
            if target == "mpirun":
                child.send_signal(signal.SIGUSR1)
            else:
                for rank, process in processes.items():
                    if target == "all" or (target == "first") == (rank == 0):
                        os.kill(process, choose.choice(signals))
                        if target != "all":
                            break
    child.wait(timeout=120)
    output = "".join(lines)
    return output, {int(rank): int(code) for rank, code in re.findall(r"rank (\d+) ends (\d+)", output)}, sent


def newest(folder):
    steps = [int(path.name.rsplit("-", 1)[1]) for path in folder.glob("model.ckpt-*") if (path / "manifest.json").exists()]
    return max(steps, default=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    choose = random.Random(arguments.seed)
    failures = 0
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        os.environ["XDG_CACHE_HOME"] = str(root / "cache")
        straight = {}

        def command(ranks, folder):
            return mpirun(ranks, [program, *FLAGS, f"--train_dir={folder}"])

        for ranks in (2, 3):
            subprocess.run(command(ranks, root / f"straight-{ranks}"), env=environment(), check=True, capture_output=True)
            straight[ranks] = (root / f"straight-{ranks}" / f"model.ckpt-{STEPS}" / "tensors.bin").read_bytes()
        for run in range(arguments.runs):
            ranks, target = choose.choice([2, 3]), ["first", "other", "all", "mpirun"][run % 4]
            folder, after = root / f"run-{run}", 10 * choose.randint(1, STEPS // 40)
            output, codes, sent = stop(command(ranks, folder), target, f"{after}\t", choose)
            step = newest(folder)
            problems = []
            if not sent:
                problems.append("no signal was sent")
            if codes != {rank: STOPPED for rank in range(ranks)}:
                problems.append(f"exit codes {codes}")
            if not after <= step < STEPS:
                problems.append(f"the checkpoint is of step {step}")
            again = subprocess.run(command(ranks, folder), env=environment(), capture_output=True, text=True)
            if again.returncode != 0:
                problems.append(f"going on ended with {again.returncode}: {again.stdout[-2000:]}{again.stderr[-2000:]}")
            elif (folder / f"model.ckpt-{STEPS}" / "tensors.bin").read_bytes() != straight[ranks]:
                problems.append("going on came to other weights")
            print(f"run {run}: {ranks} ranks, a signal to {target} behind step {after}, all ended after step {step}"
                  + "".join(f"; {problem}" for problem in problems), flush=True)
            if problems:
                failures += 1
                print(output[-4000:], flush=True)
    print(f"{arguments.runs} runs, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
