#!/usr/bin/env python3
"""Runs the tests of tests/quick_tests.txt: one minute on 2 cores, chosen by scripts/choose_quick.

usage: scripts/quick_tests.py [--build=FOLDER] [--jobs=N] [--list=FILE]    runs them
       scripts/quick_tests.py --check [...]                                  runs none: says which lines name no suite
       scripts/quick_tests.py --programs                                      names the test programs that it needs, for ninja

A line of the list is a room and a suite; `-Case` behind it leaves a slow case out, and `Suite.Case` in place of the suite is this
case alone. Each room's test program runs its suites in one process, or in a few where they take long, N processes at a time (the
number of processors). Exit code 1 when a test failed, 2 when a line is wrong.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PART_SECONDS = 12  # a room whose tests take longer is dealt out to several processes


class Line:
    """A room, a suite or one of its cases, and the cases that are left out; the seconds stand in a comment."""

    def __init__(self, number, text):
        words, _, comment = text.partition("#")
        self.number, (self.room, self.name, *left_out) = number, words.split()
        self.left_out = [word[1:] for word in left_out]
        seconds = re.search(r"([\d.]+) s\b", comment)
        self.seconds = float(seconds.group(1)) if seconds else 0.0
        if any(not word.startswith("-") for word in left_out):
            raise ValueError

    @property
    def suite(self):
        return self.name.partition(".")[0]

    def takes(self):
        return [self.name if "." in self.name else f"{self.name}.*"]

    def leaves_out(self):
        return [f"{self.suite}.{case}" for case in self.left_out]


def read_list(path):
    lines = []
    for number, text in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if text.partition("#")[0].strip():
            try:
                lines.append(Line(number, text))
            except ValueError:
                sys.exit(f"quick_tests: {path}:{number}: expected ROOM SUITE [-CASE...] or ROOM SUITE.CASE: {text}")
    if not lines:
        sys.exit(f"quick_tests: {path} names no suite")
    return lines


def filter_of(lines):
    """The text of --gtest_filter that runs these lines."""
    left_out = [pattern for line in lines for pattern in line.leaves_out()]
    return ":".join(pattern for line in lines for pattern in line.takes()) + ("-" + ":".join(left_out) if left_out else "")


def program_of(build, room):
    return build / f"trainyard_{room}_test"


def cases_of(program):
    """{suite: its cases} that the program lists"""
    listed = subprocess.run([program, "--gtest_list_tests"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found, suite = {}, None
    for text in listed.splitlines():
        text = re.sub(r" *#.*", "", text)
        if re.fullmatch(r"\S+\.", text):
            suite = text[:-1]
            found[suite] = set()
        elif text.startswith("  ") and suite is not None:
            found[suite].add(text.strip())
    return found


def check(build, path, lines):
    """Messages about lines that are twice, and that name what no test program has."""
    wrong, seen = [], set()
    known = {}
    for line in lines:
        where = f"{path}:{line.number}"
        program = program_of(build, line.room)
        if not program.exists():
            wrong.append(f"{where}: there is no {program}")
            continue
        if line.room not in known:
            known[line.room] = cases_of(program)
        cases = known[line.room].get(line.suite)
        if (line.room, line.name) in seen:
            wrong.append(f"{where}: {line.room} {line.name} is there twice")
        seen.add((line.room, line.name))
        if cases is None:
            wrong.append(f"{where}: room {line.room} has no suite {line.suite}: was it renamed? scripts/choose_quick chooses anew")
            continue
        named = line.left_out + ([line.name.partition(".")[2]] if "." in line.name else [])
        wrong += [f"{where}: suite {line.suite} has no case {case}" for case in named if case not in cases]
    return wrong


def parts_of(lines):
    """[(room, lines of one process)], the longest first"""
    parts = []
    for room in dict.fromkeys(line.room for line in lines):
        own = [line for line in lines if line.room == room]
        count = max(1, round(sum(line.seconds for line in own) / PART_SECONDS))
        dealt = [[] for _ in range(count)]
        for line in sorted(own, key=lambda line: -line.seconds):
            min(dealt, key=lambda part: sum(each.seconds for each in part)).append(line)
        # A suite's lines stay together, since what one of them leaves out would leave out another's case.
        parts += [(room, part) for part in dealt if part]
    return sorted(parts, key=lambda part: -sum(line.seconds for line in part[1]))


def run_part(build, room, lines):
    start = time.monotonic()
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
    done = subprocess.run([program_of(build, room), f"--gtest_filter={filter_of(lines)}", "--gtest_brief=1"], cwd=ROOT, env=environment,
                          capture_output=True, text=True)
    passed = re.search(r"\[  PASSED  \] (\d+) test", done.stdout)
    output = done.stdout + done.stderr
    failed = done.returncode != 0 or not passed
    return failed, int(passed.group(1)) if passed else 0, time.monotonic() - start, output if failed else ""


def run(build, lines, jobs):
    start = time.monotonic()
    count, failures = 0, 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        parts = {pool.submit(run_part, build, room, own): (room, own) for room, own in parts_of(lines)}
        for future in concurrent.futures.as_completed(parts):
            room, own = parts[future]
            failed, passed, seconds, output = future.result()
            count += passed
            failures += failed
            print(f"{'failed' if failed else 'passed'}: {room}, {len(own)} suites, {passed} tests, {seconds:.1f} s", flush=True)
            if failed:
                print(output, flush=True)
    print(f"quick tests: {count} passed in {time.monotonic() - start:.0f} s" + (f"; {failures} processes failed" if failures else ""))
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(prog="quick_tests", usage=__doc__, add_help=False)
    parser.add_argument("--help", action="store_true")
    parser.add_argument("--build", default="build")
    parser.add_argument("--list", default=str(ROOT / "tests" / "quick_tests.txt"))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--programs", action="store_true")
    options = parser.parse_args()
    if options.help:
        print(__doc__.strip())
        return 0
    build = (ROOT / options.build).resolve()
    lines = read_list(options.list)
    if options.programs:
        print(*(program_of(build, room).name for room in dict.fromkeys(line.room for line in lines)), sep="\n")
        return 0
    wrong = check(build, options.list, lines)
    if wrong:
        print(*wrong, sep="\n")
        return 2
    return 0 if options.check else run(build, lines, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
