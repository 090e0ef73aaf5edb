#!/usr/bin/env python3
"""Writes the numbers of pycocotools 2.0.11 for 80 random cases into trainyard/train/testdata/coco_metric.txt.

usage: tools/golden/coco_metric.py      with Python's packages of tests/requirements.txt (scripts/test_python)
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from coco_cases import line_and_numbers  # noqa: E402

CASES = 80


def main():
    lines = ["# Cases (tests/coco_cases.py) and, after =, the twelve numbers of pycocotools 2.0.11. Written by tools/golden/coco_metric.py."]
    seed = 0
    while len(lines) <= CASES:
        seed += 1
        line, numbers = line_and_numbers(-seed)
        if len(line) < 3000:
            lines.append(line + " = " + " ".join(value.hex() for value in numbers))
    (ROOT / "trainyard/train/testdata/coco_metric.txt").write_text("\n".join(lines) + "\n")


main()
