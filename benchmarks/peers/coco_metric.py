#!/usr/bin/env python3
"""Times COCO's metric: `trainyard eval-detections`, hotcoco and pycocotools on one made set of 5,000 images, 35,000 boxes and 500,000
detections, and compares their numbers. Prints a table of medians: seconds to read the files, to measure, and of the whole program.

usage: PYTHON benchmarks/peers/coco_metric.py [--program=build/trainyard] [--rounds=5] [--without-pycocotools] [--folder=FOLDER]
  PYTHON is one with hotcoco and pycocotools (benchmarks/peers/requirements.txt). pycocotools takes a minute, and runs once.
  FOLDER keeps the made files for a further run.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

IMAGES, DETECTIONS_AN_IMAGE, CATEGORIES = 5000, 100, 80


def make_files(folder):
    """Objects of a few categories an image, of which some are frequent, and detections near them or anywhere."""
    draw = numpy.random.default_rng(1)
    frequency = 1 / numpy.arange(1, CATEGORIES + 1)
    frequency /= frequency.sum()

    def any_box():
        return [float(round(value, 2)) for value in (draw.uniform(0, 600), draw.uniform(0, 440), numpy.exp(draw.uniform(2, 6)),
                                                     numpy.exp(draw.uniform(2, 5.5)))]
    images = [int(number) for number in numpy.sort(draw.choice(600_000, IMAGES, replace=False))]
    boxes, detections = [], []
    for image in images:
        categories = draw.choice(CATEGORIES, 3, p=frequency) + 1
        own = []
        for _ in range(draw.integers(1, 14)):
            box = any_box()
            own.append((int(draw.choice(categories)), box))
            boxes.append({"id": len(boxes) + 1, "image_id": image, "category_id": own[-1][0], "bbox": box,
                          "area": round(box[2] * box[3] * draw.uniform(0.4, 1), 3), "iscrowd": int(draw.random() < 0.01)})
        for _ in range(DETECTIONS_AN_IMAGE):
            category, box = own[draw.integers(len(own))]
            if draw.random() < 0.5:
                move = draw.normal(0, 0.1, 4)
                box = [box[0] + move[0] * box[2], box[1] + move[1] * box[3], box[2] * (1 + abs(move[2])), box[3] * (1 + abs(move[3]))]
            else:
                category, box = int(draw.choice(CATEGORIES, p=frequency)) + 1, any_box()
            detections.append({"image_id": image, "category_id": category, "bbox": [float(numpy.float32(value)) for value in box],
                               "score": float(numpy.float32(0.05 + 0.95 * draw.random() ** 2))})
    (folder / "truth.json").write_text(json.dumps({
        "images": [{"id": image, "file_name": f"{image:012}.jpg", "width": 640, "height": 480} for image in images],
        "categories": [{"id": number, "name": str(number)} for number in range(1, CATEGORIES + 1)], "annotations": boxes}))
    (folder / "found.json").write_text(json.dumps(detections))


def ours(program, truth, found):
    begin = time.perf_counter()
    output = truth.parent / "numbers.json"
    done = subprocess.run([program, "eval-detections", truth, found, f"--output={output}"], capture_output=True, text=True, check=True)
    whole = time.perf_counter() - begin
    read, measured = re.search(r"([0-9.]+) s to read, ([0-9.]+) s to measure", done.stderr).groups()
    return float(read), float(measured), whole, list(json.loads(output.read_text()).values())


def library(name, truth, found):
    """In this process; begins with "import" so that the whole is a program's."""
    if name == "hotcoco":
        from hotcoco import COCO, COCOeval
    else:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        begin = time.perf_counter()
        annotated = COCO(str(truth))
        detected = annotated.loadRes(str(found))
        read = time.perf_counter() - begin
        begin = time.perf_counter()
        evaluation = COCOeval(annotated, detected, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        measured = time.perf_counter() - begin
    return read, measured, [float(value) for value in evaluation.stats]


def in_new_process(name, truth, found):
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, "--library", name, truth, found], stdout=subprocess.PIPE, text=True, check=True)
    whole = time.perf_counter() - begin
    read, measured, numbers = json.loads(done.stdout.splitlines()[-1])
    return read, measured, whole, numbers


def main():
    if sys.argv[1:2] == ["--library"]:
        print(json.dumps(library(*sys.argv[2:])))
        return
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--program", default="build/trainyard")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--without-pycocotools", action="store_true")
    arguments.add_argument("--folder")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.folder or temporary)
        truth, found = folder / "truth.json", folder / "found.json"
        if not found.exists():
            folder.mkdir(parents=True, exist_ok=True)
            make_files(folder)
        rows = {"Trainyard": [], "hotcoco": [], "pycocotools": []}
        for turn in range(options.rounds):
            rows["Trainyard"].append(ours(options.program, truth, found))
            rows["hotcoco"].append(in_new_process("hotcoco", truth, found))
            if turn == 0 and not options.without_pycocotools:
                rows["pycocotools"].append(in_new_process("pycocotools", truth, found))
    print("| | read, s | measure, s | whole program, s |\n|---|---|---|---|")
    for name, times in rows.items():
        if times:
            print(f"| {name} |" + "".join(f" {statistics.median(each[part] for each in times):.3f} |" for part in range(3)))
    numbers = rows["Trainyard"][0][3]
    for name, times in rows.items():
        if times:
            print(f"{name}: AP {times[0][3][0]!r}, numbers that differ from ours: {sum(a != b for a, b in zip(times[0][3], numbers))}")


main()
