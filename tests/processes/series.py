"""A series of trials that draw what they do from a seed: command line, report, exit status. For failures.py and cluster_failures.py."""

import argparse
import collections
import pathlib
import random
import shutil
import tempfile
import time


class Fault(Exception):
    """What must not happen."""


def parse_arguments(description, phases):
    parser = argparse.ArgumentParser(description=description.split("\n\n", maxsplit=1)[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(phases))
    parser.add_argument("--report", type=pathlib.Path)
    return parser.parse_args()


def run_series(arguments, prefix, make_trial, key_of, columns, deadline):
    """Runs make_trial(folder, random, phase) for each number; key_of(trial) are the values of `columns` in the report. Returns the
    exit status."""
    phases = arguments.only.split(",")
    root = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
    counts, slowest, faults = collections.Counter(), collections.defaultdict(float), []
    begin = time.monotonic()
    for number in range(arguments.runs):
        trial = make_trial(root / f"{number:03d}", random.Random(f"{arguments.seed} {number}"), phases[number % len(phases)])
        key = key_of(trial)
        try:
            trial.run()
        except Fault as fault:
            faults.append(key)
            print(f"trial {number}, {trial.describe()}: FAULT: {fault}\n  left in {trial.folder}", flush=True)
        else:
            shutil.rmtree(trial.folder, ignore_errors=True)
            slowest[key] = max(slowest[key], getattr(trial, "seconds", 0))
        counts[key] += 1
    seconds = time.monotonic() - begin
    if arguments.report:
        lines = [f"{arguments.runs} runs, seed {arguments.seed}, {seconds:.0f} s, deadline {deadline:g} s, {len(faults)} faults.", "",
                 f"| {' | '.join(columns)} | trials | faults | slowest end of a survivor |", f"|{'---|' * (len(columns) + 3)}"]
        for key in sorted(counts):
            slow = f"{slowest[key]:.1f} s" if slowest[key] else "-"
            lines.append(f"| {' | '.join(key)} | {counts[key]} | {faults.count(key)} | {slow} |")
        arguments.report.write_text("\n".join(lines) + "\n")
    if not faults:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{arguments.runs - len(faults)} passed, {len(faults)} failed")
    return 1 if faults else 0
