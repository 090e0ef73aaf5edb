#!/usr/bin/env python3
"""Trains for a long time and looks at what may not grow: memory, descriptors, threads and files of two ranks that evaluate, save
checkpoints and are reported, and the time of a step.

usage: tests/long_run/run.py PROGRAM [--steps=200000] [--speed=0.02] [--memory=0.02] [--report=FILE.json]

PROGRAM is build/trainyard. The run is LeNet on drawn shapes by `trainyard launch -n 2`. Ends with 1 when something grew, or when
the last tenth of the steps took longer than the first (behind a tenth for warming up) by more than --speed as a fraction. Skipped
by name, with code 77, without Open MPI.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "launch"))
from launched import Launch, status_of  # noqa: E402
from namespaces import need  # noqa: E402

SPARE_KIB = 4096  # that a rank's memory may grow by in any case: pages of its heap
FILES = 60  # more than a run of any length has: logs, metrics, five checkpoints, a report


def counts_of(process):
    """Memory that is the process's own in KiB, threads and descriptors; None when it has ended."""
    status = status_of(process)
    try:
        return {"memory": int(status["RssAnon"].split()[0]), "threads": int(status["Threads"]),
                "descriptors": len(os.listdir(f"/proc/{process}/fd"))}
    except (KeyError, OSError):
        return None


def files_below(folder):
    return sum(len(files) for _, _, files in os.walk(folder))


class Watch(threading.Thread):
    """Looks at the ranks, and has a report written, until told to end."""

    def __init__(self, launch, program, folder, interval):
        super().__init__(daemon=True)
        self.launch, self.program, self.folder, self.interval = launch, program, folder, interval
        self.looks, self.reports, self.ending = [], 0, threading.Event()

    def run(self):
        while not self.ending.wait(self.interval):
            ranks = {process: counts for process in self.launch.find("trainyard", "train") if (counts := counts_of(process))}
            if len(ranks) == 2:
                self.looks.append({"time": time.time(), "ranks": ranks, "files": files_below(self.folder)})
            if len(self.looks) % 10 == 1:
                self.reports += subprocess.run([self.program, "report", self.folder], stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL).returncode == 0


def growth_of(looks, memory, copy):
    """What grew from the second quarter of the looks to the last one, in words. `copy`: KiB of a checkpoint's tensors."""
    quarter = len(looks) // 4
    before, after = looks[quarter:2 * quarter], looks[3 * quarter:]
    grown = []
    for rank, process in enumerate(sorted(after[-1]["ranks"])):
        for what in ("memory", "threads", "descriptors"):
            first = statistics.median(look["ranks"][process][what] for look in before)
            last = statistics.median(look["ranks"][process][what] for look in after)
            # The first checkpoint that is due while another is still written is a second copy of the state, whose memory is kept.
            allowed = first * (1 + memory) + copy + SPARE_KIB if what == "memory" else first
            if last > allowed:
                grown.append(f"{what} of rank {rank} grew from {first} to {last}")
    first, last = (statistics.median(look["files"] for look in part) for part in (before, after))  # some are there for a moment
    if last > first or max(look["files"] for look in looks) > FILES:
        grown.append(f"files grew from {first} to {last}, {max(look['files'] for look in looks)} at most")
    return grown


def times_of(folder):
    """{step: seconds since the epoch} of the steps that the metrics have."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["global_step"]: row["wall_time"] for row in rows if row["phase"] == "train"}


def step_seconds(times, steps):
    """Seconds of a step in the second tenth and in the last tenth of the run, evaluations and checkpoints among them."""
    def mean(begin, end):
        inside = sorted(step for step in times if begin <= step <= end)
        return (times[inside[-1]] - times[inside[0]]) / (inside[-1] - inside[0])

    return mean(steps // 10, steps // 5), mean(steps - steps // 10, steps)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200000)
    parser.add_argument("--speed", type=float, default=0.02)
    parser.add_argument("--memory", type=float, default=0.02)
    parser.add_argument("--report", type=pathlib.Path)
    return parser.parse_args()


def main():
    arguments = read_arguments()
    need(("mpirun", "openmpi-bin"))
    program, steps = arguments.program.resolve(), arguments.steps
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        subprocess.run([program, "data", "make-shapes", f"--output={root / 'shapes'}", "--train_count=96",
                        "--validation_count=24"], check=True, stdout=subprocess.DEVNULL)
        folder = root / "run"
        start = time.monotonic()
        launch = Launch(program, "launch", "-n", 2, "--", "train", "--model=lenet", "--device=cpu", "--batch_size=4",
                        "--data_name=imagenet", f"--num_batches={steps}", "--variable_update=horovod", "--optimizer=sgd",
                        "--init_learning_rate=0.001", "--num_warmup_batches=0", f"--display_every={max(steps // 200, 1)}",
                        f"--save_summaries_steps={max(steps // 200, 1)}", f"--save_model_steps={max(steps // 100, 1)}",
                        f"--eval_during_training_every_n_steps={max(steps // 50, 1)}", "--num_eval_batches=2",
                        f"--data_dir={root / 'shapes'}", f"--train_dir={folder}",
                        environment={"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(root / "cache")})
        watch = Watch(launch, program, folder, min(10, max(0.05, steps / 20000)))
        watch.start()
        code = launch.end(seconds=24 * 3600)
        watch.ending.set()
        watch.join()
        if code != 0:
            sys.exit(f"long_run: the launch ended with {code}:\n{launch.error[-2000:]}")
        times = times_of(folder)
        first, last = step_seconds(times, steps)
        checkpoints = {int(number): path for path in folder.glob("model.ckpt-*") if (number := path.name.split("-")[1]).isdigit()}
        newest = max(checkpoints)
        copy = (checkpoints[newest] / "tensors.bin").stat().st_size // 1024
    # While it trains: at the end a rank writes its summary and gives up its threads.
    looks = [look for look in watch.looks if min(times.values()) <= look["time"] <= max(times.values())]
    faults = growth_of(looks, arguments.memory, copy) if len(looks) >= 8 else ["the run was too short to be watched"]
    if watch.reports == 0:
        faults.append("no report was written")
    if newest != steps:
        faults.append(f"the newest checkpoint is of step {newest}")
    if last > first * (1 + arguments.speed):
        faults.append(f"a step took {1000 * first:.3f} ms at first and {1000 * last:.3f} ms at last")
    end = looks[-1] if looks else {}
    print(f"{steps} steps in {time.monotonic() - start:.0f} s, {len(looks)} looks, {watch.reports} reports; a step "
          f"{1000 * first:.3f} ms at first, {1000 * last:.3f} ms at last; at the end {end}")
    if arguments.report:
        arguments.report.write_text(json.dumps({"steps": steps, "first": first, "last": last, "looks": looks}))
    for fault in faults:
        print(f"long_run: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
