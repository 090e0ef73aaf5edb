#!/usr/bin/env python3
"""Disturbs runs of the program at random moments and looks for what nobody may find: a wrong accuracy, a good checkpoint
that was lost, a fault that was not reported.

usage: tests/torture/run.py PROGRAM [--runs=200] [--seed=N] [--only=KIND,...] [--numbers=N,...] [--report=FILE.md]

Kinds take turns; what a trial does is a function of the seed and its number, when it does it is up to the machine. Ends
with 1 when a trial found a fault, and leaves that trial's folder behind.
"""
import sys

from trials import KINDS
from world import STEPS, World

from series import make_parser, run_series  # which world.py finds


class Trial:
    def __init__(self, worlds, folder, draw, kind):
        self.worlds, self.folder, self.draw, self.kind = worlds, folder, draw, kind

    def describe(self):
        return self.kind

    def run(self):
        KINDS[self.kind](self.worlds[0], self.draw, self.folder)


def main():
    arguments = make_parser(__doc__, KINDS, runs=200).parse_args()
    worlds = []

    def prepare(root):
        worlds.append(World(arguments.program.resolve(), root))
        worlds[0].prepare()

    return run_series(arguments, "torture-", lambda *drawn: Trial(worlds, *drawn), lambda trial: (trial.kind,), ("kind",),
                      f"{STEPS} steps each", prepare)


if __name__ == "__main__":
    sys.exit(main())
