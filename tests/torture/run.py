#!/usr/bin/env python3
"""Disturbs runs of the program at random moments and looks for what nobody may find: a wrong accuracy, a good checkpoint
that was lost, a fault that was not reported.

usage: tests/torture/run.py PROGRAM [--runs=200] [--seed=N] [--only=KIND,...] [--report=FILE.md]

Kinds take turns; what a trial does is a function of the seed and its number, when it does it is up to the machine. Ends
with 1 when a trial found a fault, and leaves that trial's folder behind.
"""
import argparse
import collections
import pathlib
import random
import shutil
import sys
import tempfile
import time

from trials import KINDS
from world import STEPS, Fault, World


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--report", type=pathlib.Path)
    arguments = parser.parse_args()
    kinds = arguments.only.split(",")
    root = pathlib.Path(tempfile.mkdtemp(prefix="torture-"))
    world = World(arguments.program.resolve(), root)
    start = time.monotonic()
    world.prepare()
    counts, faults = collections.Counter(), []
    for number in range(arguments.runs):
        kind = kinds[number % len(kinds)]
        folder = root / f"{number:03d}-{kind}"
        try:
            KINDS[kind](world, random.Random(f"{arguments.seed} {number}"), folder)
        except Fault as fault:
            faults.append((number, kind, str(fault)))
            print(f"trial {number}, {kind}: FAULT: {fault}\n  left in {folder}", flush=True)
        else:
            for path in root.glob(f"{folder.name}*"):
                shutil.rmtree(path)
        counts[kind] += 1
    seconds = time.monotonic() - start
    if arguments.report:
        arguments.report.write_text("\n".join(
            [f"{arguments.runs} runs, seed {arguments.seed}, {seconds:.0f} s, {STEPS} steps each, {len(faults)} faults.", "",
             "| kind | trials | faults |", "|---|---|---|"]
            + [f"| {kind} | {counts[kind]} | {sum(found == kind for _, found, _ in faults)} |" for kind in kinds]) + "\n")
    if not faults:
        shutil.rmtree(root)
    print(f"{arguments.runs - len(faults)} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
