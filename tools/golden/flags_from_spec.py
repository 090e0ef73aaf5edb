#!/usr/bin/env python3
"""Extracts the flag table (section 2) of the tf_cnn_benchmarks specification as tab-separated values.

    tools/golden/flags_from_spec.py SPEC.md > trainyard/frontends/testdata/upstream_flags.tsv

Columns: name, kind, default ("None": not set), lower bound, upper bound ("": none), choices separated by '|'.
The declarations in trainyard/*/flags.cpp are checked against that file.
"""

import ast
import re
import sys

ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| (\w+) \| `(.*?)` \|\s*(.*?)\s*\|")


def number(text):
    value = ast.literal_eval(text)
    return repr(int(value) if float(value).is_integer() else float(value))


def default(kind, text):
    if "<<" in text:  # "4 << 30"
        left, right = text.split("<<")
        return str(int(left) << int(right))
    value = ast.literal_eval(text)
    if value is None:
        return "None"
    if kind == "boolean":
        return str(value).lower()
    if kind == "list":
        return ",".join(value)
    return value if kind in ("string", "enum") else number(text)


def constraints(text):
    text = text.strip().strip("`")
    bounds = dict(re.findall(r"(lower|upper)_bound=([-\d.e]+)", text))
    choices = [] if not text or bounds else list(ast.literal_eval(text))
    return number(bounds["lower"]) if "lower" in bounds else "", number(bounds["upper"]) if "upper" in bounds else "", "|".join(choices)


def main():
    expected = 1
    for line in open(sys.argv[1], encoding="utf-8"):
        match = ROW.match(line)
        if not match or int(match[1]) != expected:
            continue
        kind = match[3]
        print("\t".join([match[2], kind, default(kind, match[4]), *constraints(match[5])]))
        expected += 1
    if expected != 139:
        sys.exit(f"found {expected - 1} flags instead of 138")


if __name__ == "__main__":
    main()
