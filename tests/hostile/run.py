#!/usr/bin/env python3
"""Runs hostile cases: inputs and faults that are drawn from a seed, each with its expected outcome (docs/design/hardening.md).

usage: tests/hostile/run.py BUILD [--cases=30000] [--seed=1] [--kind=images,processes,...] [--minutes=60] [--first=0]

BUILD is the folder with `trainyard` and `trainyard_hostile_cases`. The cases are shared among the kinds by SHARES. One
of a kind again: --kind=records --first=1234 --cases=1. Ends with 1 when an outcome was another one than expected, with
3 when the minutes were over before all cases had run.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import time

import processes

SHARES = {"images": 9000, "records": 9000, "weights": 5000, "configs": 4500, "checkpoints": 2000, "processes": 500}
CHUNK = 250  # cases of a process


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--cases", type=int, default=sum(SHARES.values()))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind", default=",".join(SHARES), type=lambda text: text.split(","))
    parser.add_argument("--minutes", type=float, default=60)
    arguments = parser.parse_args()
    for kind in arguments.kind:
        if kind not in SHARES:
            parser.error(f"unknown kind {kind}; known: {', '.join(SHARES)}")
    return arguments


def run_chunk(program, kind, seed, first, count):
    """Returns the lines of faults, and how often what was drawn."""
    done = subprocess.run([program, kind, str(seed), str(first), str(count)], capture_output=True, text=True,
                          errors="replace", timeout=600 + 300 * count)
    lines = done.stdout.splitlines()
    faults = [line for line in lines if line.startswith("case ")]
    drawn = collections.Counter()
    for line in lines:
        if found := re.fullmatch(r"drawn (\d+) (.*)", line):
            drawn[found.group(2)] += int(found.group(1))
    if done.returncode != 0 and not faults:  # also by 1, with which AddressSanitizer ends what it finds
        faults.append(f"case {kind} {first} to {first + count - 1}: ended with {done.returncode}: {done.stderr[-400:]}")
    return faults, drawn


def main():
    arguments = read_arguments()
    program = arguments.build.resolve() / "trainyard_hostile_cases"
    end = time.monotonic() + 60 * arguments.minutes
    total = sum(SHARES[kind] for kind in arguments.kind)
    faults, over = [], False
    for kind in arguments.kind:
        cases = max(1, round(arguments.cases * SHARES[kind] / total))
        start, done, drawn = time.monotonic(), 0, collections.Counter()
        while done < cases and not over:
            count = min(CHUNK if kind != "processes" else 1, cases - done)
            first = arguments.first + done
            found, what = (processes.run(arguments.build.resolve(), arguments.seed, first) if kind == "processes" else
                           run_chunk(program, kind, arguments.seed, first, count))
            for line in found:
                print(line, flush=True)
            faults += found
            drawn += what
            done += count
            over = time.monotonic() > end
        print(f"{kind}: {done} cases in {time.monotonic() - start:.1f} s; "
              + ", ".join(f"{what} {times}" for what, times in sorted(drawn.items())), flush=True)
    print(f"{len(faults)} faults with seed {arguments.seed}" + (", not all cases: the minutes were over" if over else ""))
    return 1 if faults else 3 if over else 0


if __name__ == "__main__":
    sys.exit(main())
