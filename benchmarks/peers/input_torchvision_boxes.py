#!/usr/bin/env python3
"""Images a second out of torchvision's v2 transforms on the CPU: COCO's JSON and images to SSD's random parts, mirrored, with
jittered colours, at 300 x 300, normalized, as float batches with boxes. Default boxes are not matched: torchvision's model does
that in its step. Images are decoded by torchvision.io into tensors, the fastest way that its transforms take.

usage: input_torchvision_boxes.py FOLDER BATCH THREADS SECONDS     prints one JSON line, as measured.py says
"""

import json
import os
import resource
import sys
import time

import torch
import torchvision
from torchvision import tv_tensors
from torchvision.transforms import v2

from measured import WARM_UP_STEPS, seconds_since_start


class Boxed(torch.utils.data.Dataset):
    def __init__(self, folder):
        with open(os.path.join(folder, "annotations/instances_train2017.json"), encoding="utf-8") as file:
            said = json.load(file)
        boxes = {}
        for box in said["annotations"]:
            boxes.setdefault(box["image_id"], []).append(box)
        self.images = [(os.path.join(folder, "train2017", image["file_name"]), (image["height"], image["width"]), boxes[image["id"]])
                       for image in said["images"] if image["id"] in boxes]
        self.transform = v2.Compose([
            v2.RandomIoUCrop(min_scale=0.3, max_scale=1.0, min_aspect_ratio=0.5, max_aspect_ratio=2.0, trials=50),
            v2.RandomHorizontalFlip(),
            v2.Resize((300, 300), antialias=False),
            v2.ColorJitter(brightness=0.125, contrast=0.5, saturation=0.5, hue=0.05),
            v2.SanitizeBoundingBoxes(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        path, size, boxes = self.images[index]
        image = tv_tensors.Image(torchvision.io.read_image(path, torchvision.io.ImageReadMode.RGB))
        target = {"boxes": tv_tensors.BoundingBoxes([box["bbox"] for box in boxes], format="XYWH", canvas_size=size),
                  "labels": torch.tensor([box["category_id"] for box in boxes])}
        return self.transform(image, target)


def collate(samples):
    images, targets = zip(*samples)
    return torch.stack(images), targets


def main():
    folder, (batch, threads), seconds = sys.argv[1], map(int, sys.argv[2:4]), float(sys.argv[4])
    dataset = Boxed(folder)
    # Without an end, so that workers do not start anew.
    sampler = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=1 << 40)
    loader = iter(torch.utils.data.DataLoader(dataset, batch, sampler=sampler, num_workers=threads, collate_fn=collate,
                                              worker_init_fn=lambda _: torch.set_num_threads(1)))
    next(loader)
    first = seconds_since_start()
    for _ in range(WARM_UP_STEPS):
        next(loader)
    start, images = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        next(loader)
        images += batch
    print(json.dumps({"images_per_sec": images / (time.monotonic() - start),
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "first_step_done_s": first}), flush=True)


main()
