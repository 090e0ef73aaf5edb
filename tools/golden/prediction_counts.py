#!/usr/bin/env python3
"""Writes what scikit-learn computes from a classifier's logits, for prediction_counts_test.cpp:
prediction_counts.py > trainyard/train/testdata/prediction_counts.txt

Needs scikit-learn (made with 1.9.1). Class 5 has no image, class 6 is never predicted. Lines: "image LABEL LOGIT...",
"confusion COUNT...", a row a line, "class PRECISION RECALL F1", "top_k K ACCURACY", and "ece BINS ERROR", which is Guo et
al. 2017, equation 3, in NumPy.
"""
import numpy as np
import sklearn
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, top_k_accuracy_score

CLASSES, IMAGES = 7, 120
print(f"# tools/golden/prediction_counts.py: scikit-learn {sklearn.__version__}")
random = np.random.default_rng(11)
labels = random.choice([0, 1, 2, 3, 4, 6], IMAGES)
logits = random.normal(size=(IMAGES, CLASSES)) * 2
logits[np.arange(IMAGES), labels] += 1.5
logits[1::2] *= 0.1  # half of the images: right more often than their confidence says
logits[np.arange(1, IMAGES, 2), labels[1::2]] += 0.5
logits[:, 6] -= 9
logits = np.round(logits, 3).astype(np.float32)
for label, row in zip(labels, logits):
    print("image", label, *(f"{value:.3f}" for value in row))
predicted = logits.argmax(1)
every = list(range(CLASSES))
for row in confusion_matrix(labels, predicted, labels=every):
    print("confusion", *row)
precision, recall, f1, _ = precision_recall_fscore_support(labels, predicted, labels=every, zero_division=0)
for numbers in zip(precision, recall, f1):
    print("class", *(repr(float(number)) for number in numbers))
for k in (1, 2, 3, 5):
    print("top_k", k, repr(float(top_k_accuracy_score(labels, logits.astype(float), k=k, labels=every))))
shifted = np.exp(logits.astype(float) - logits.max(1, keepdims=True).astype(float))
confidence = (shifted / shifted.sum(1, keepdims=True)).max(1)
for bins in (1, 10, 15):
    error = 0.0
    for i in range(bins):
        inside = (confidence > i / bins) & (confidence <= (i + 1) / bins)
        if inside.any():
            error += inside.mean() * abs((predicted == labels)[inside].mean() - confidence[inside].mean())
    print("ece", bins, repr(float(error)))
