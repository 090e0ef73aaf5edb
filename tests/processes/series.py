"""A series of trials that draw what they do from a seed: command line, report, exit status. For failures.py and cluster_failures.py,
and for tests/torture/run.py."""

import argparse
import collections
import pathlib
import random
import shutil
import tempfile
import time


class Fault(Exception):
    """What must not happen."""


def make_parser(description, kinds, runs=100):
    """A parser for what all series have; `kinds` are the parts that take turns."""
    parser = argparse.ArgumentParser(description=description.split("\n\n", maxsplit=1)[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(kinds))
    parser.add_argument("--numbers", help="the numbers of some of the runs, which alone are run: 49,76")
    parser.add_argument("--report", type=pathlib.Path)
    return parser


def add_deadline(parser, seconds):
    """--deadline, by which all times of a trial scale: more for a machine that others load."""
    parser.add_argument("--deadline", type=float, default=seconds)


def run_series(arguments, prefix, make_trial, key_of, columns, about, prepare=lambda root: None):
    """Runs make_trial(folder, random, kind) for each number, behind prepare(root); key_of(trial) are the values of `columns` in the
    report, `about` is what its first line says of all. A trial has run(), describe() and maybe `seconds`, the slowest end of a survivor.
    Returns the exit status."""
    kinds = arguments.only.split(",")
    root = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
    begin = time.monotonic()
    prepare(root)
    counts, slowest, faults = collections.Counter(), collections.defaultdict(float), []
    numbers = [int(number) for number in arguments.numbers.split(",")] if arguments.numbers else range(arguments.runs)
    for number in numbers:
        kind = kinds[number % len(kinds)]
        folder = root / f"{number:03d}-{kind}"
        trial = make_trial(folder, random.Random(f"{arguments.seed} {number}"), kind)
        key = key_of(trial)
        try:
            trial.run()
        except Fault as fault:
            faults.append(key)
            print(f"trial {number}, {trial.describe()}: FAULT: {fault}\n  left in {folder}", flush=True)
        else:
            for path in root.glob(f"{folder.name}*"):
                shutil.rmtree(path, ignore_errors=True)
            slowest[key] = max(slowest[key], getattr(trial, "seconds", 0))
        counts[key] += 1
    seconds = time.monotonic() - begin
    if arguments.report:
        ends = any(slowest.values())
        names = [*columns, "trials", "faults"] + ["slowest end of a survivor"] * ends
        lines = [f"{len(numbers)} runs, seed {arguments.seed}, {seconds:.0f} s, {about}, {len(faults)} faults.", "",
                 f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        for key in sorted(counts):
            slow = [f"{slowest[key]:.1f} s" if slowest[key] else "-"] * ends
            lines.append(f"| {' | '.join([*key, str(counts[key]), str(faults.count(key)), *slow])} |")
        arguments.report.write_text("\n".join(lines) + "\n")
    if not faults:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{len(numbers) - len(faults)} passed, {len(faults)} failed")
    return 1 if faults else 0
