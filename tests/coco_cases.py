"""Random small sets of annotations and detections, and the twelve numbers that pycocotools gives them.

A case is one line of words: I, the number of images, their ids; K, the same of the categories; B, the number of boxes, and of each one
id, image, category, x, y, width, height, area, crowd; D, the number of detections, and of each one image, category, x, y, width,
height, score. trainyard/train/evaluation/detection/coco_metric_test.cpp reads it.
"""
import contextlib
import copy
import os
import random

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def random_case(seed):
    draw = random.Random(seed)
    images = draw.sample(range(1, 60), 0 if draw.random() < 0.03 else draw.choice((1, 1, 2, 3, 5)))
    categories = draw.sample(range(1, 12), 0 if draw.random() < 0.03 else draw.choice((1, 1, 2, 3)))
    coarse = draw.random() < 0.5  # equal scores and boxes whose IoU is exactly a threshold
    score = (lambda: draw.choice((0.0, 0.1, 0.25, 0.5, 0.5, 0.9, 1.0, -0.5))) if coarse else draw.random
    side = (lambda: float(draw.choice((0, 8, 16, 20, 32, 40, 96, 128)))) if coarse else (lambda: draw.uniform(1, 200))
    place = (lambda: float(draw.choice((-8, 0, 4, 8, 10, 16)))) if coarse else (lambda: draw.uniform(-5, 60))
    boxes, detections = [], []
    ids = iter(draw.sample(range(200), 100))
    most_boxes, most_detections = draw.choice((0, 1, 3, 4, 6)), draw.choice((0, 2, 5, 5, 12))
    for image in images:
        for category in categories:
            kept = []
            for _ in range(draw.randint(0, most_boxes)):
                x, y, width, height = place(), place(), side(), side()
                area = draw.choice((width * height, width * height * draw.random(), 0.0, 1024.0, 9216.0, 1024.5))
                boxes.append([next(ids), image, category, x, y, width, height, area, int(draw.random() < 0.15)])
                kept.append((x, y, width, height))
            # More than are counted, now and then.
            for _ in range(130 if draw.random() < 0.005 else draw.randint(0, most_detections)):
                if kept and draw.random() < 0.7:
                    x, y, width, height = draw.choice(kept)
                    if coarse:
                        width *= draw.choice((1, 1, 0.5, 2, 0.75, 0.8, 0.9))
                        x += draw.choice((0, 0, 1, width / 4, width / 3))
                    else:
                        x, y, width, height = (value * draw.uniform(0.85, 1.15) for value in (x, y, width, height))
                else:
                    x, y, width, height = place(), place(), side(), side()
                detections.append([image, category if draw.random() < 0.97 else 99, x, y, width, height, score()])
                if draw.random() < 0.1:
                    detections.append(list(detections[-1]))
    if draw.random() < 0.1 and categories:
        boxes.append([next(ids), 777, categories[0], 1.0, 2.0, 30.0, 40.0, 1200.0, 0])  # of an image that is not listed
    draw.shuffle(detections)
    return images, categories, boxes, detections


def line_of(case):
    def words(values):
        return [str(len(values)), *(repr(value) for row in values for value in (row if isinstance(row, list) else [row]))]
    images, categories, boxes, detections = case
    return " ".join(["I", *words(images), "K", *words(categories), "B", *words(boxes), "D", *words(detections)])


def evaluated(truth, detections):
    """COCOeval of a COCO object and a list of detections, as loadRes() takes it."""
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        if detections:
            found = truth.loadRes(copy.deepcopy(detections))
        else:  # loadRes() fails
            found = COCO()
            found.dataset = {"images": truth.dataset["images"], "categories": truth.dataset["categories"], "annotations": []}
            found.createIndex()
        evaluation = COCOeval(truth, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [float(value) for value in evaluation.stats]


def numbers_of(case):
    images, categories, boxes, detections = case
    truth = COCO()
    truth.dataset = {
        "images": [{"id": image} for image in images],
        "categories": [{"id": category} for category in categories],
        "annotations": [{"id": box[0], "image_id": box[1], "category_id": box[2], "bbox": box[3:7], "area": box[7], "iscrowd": box[8]}
                        for box in boxes]}
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        truth.createIndex()
    return evaluated(truth, [{"image_id": row[0], "category_id": row[1], "bbox": row[2:6], "score": row[6]} for row in detections])


def line_and_numbers(seed):
    case = random_case(seed)
    return line_of(case), numbers_of(case)
