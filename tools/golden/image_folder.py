#!/usr/bin/env python3
"""Prints the order of torchvision's ImageFolder for the tree that dataset_form_test.cpp makes.

Needs: pip install torchvision. The committed values are those of torchvision 0.26.
"""
import os
import tempfile

from torchvision.datasets import ImageFolder

FILES = ["b/2.jpg", "b/10.JPG", "b/1.png", "b/notes.txt", "a/x/1.jpg", "a/x-y/1.jpg", "a/0.jpeg", "a/z.jpg", "B/1.jpg",
         "\u00e9/1.jpg", "b/.hidden.jpg", "b/1.jpg.txt", "b/x.jpg/1.jpg"]

with tempfile.TemporaryDirectory() as root:
    for file in FILES:
        path = os.path.join(root, file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "wb").close()
    folder = ImageFolder(root)
    print(folder.classes)
    for path, label in folder.samples:
        print(label, os.path.relpath(path, root))
