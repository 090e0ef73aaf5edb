"""Values of PyTorch and scikit-learn for classes of different sizes and for images with several labels: those in
loss_test.cpp, sample_labels_test.cpp and mean_average_precision_test.cpp.

usage: class_balance.py, with torch 2.11.0 and scikit-learn 1.9.1 (each part runs where its library is there)
"""

import numpy as np

# Small numbers that every program can write down: k / 4.
LOGITS = np.array([[1.0, -0.5, 0.25], [0.0, 2.0, -1.0], [-0.75, 0.5, 1.5], [0.25, 0.25, -0.25]])
LABELS = [0, 1, 1, 2]
OTHERS = [1, 0, 2, 2]
SHARES = [0.75, 1.0, 0.5, 0.25]
WEIGHTS = [0.5, 2.0, 1.25]
SCORES = np.array(
    [[0.9, 0.1, 0.5], [0.8, 0.7, 0.5], [0.7, 0.6, 0.2], [0.6, 0.6, 0.9], [0.5, 0.2, 0.1], [0.4, 0.9, 0.3]]
)
POSITIVE = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0]])


def torch_values():
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

    logits, weight = torch.tensor(LOGITS), torch.tensor(WEIGHTS, dtype=torch.float64)
    labels, others = torch.tensor(LABELS), torch.tensor(OTHERS)
    shares = torch.tensor(SHARES, dtype=torch.float64)
    one_hot = torch.nn.functional.one_hot
    mixed = shares[:, None] * one_hot(labels, 3) + (1 - shares)[:, None] * one_hot(others, 3)
    for smoothing in (0.0, 0.1):
        x = logits.clone().requires_grad_(True)
        loss = torch.nn.CrossEntropyLoss(weight, label_smoothing=smoothing)(x, labels)
        loss.backward()
        print(f"weighted, smoothing {smoothing}: {loss.item():.15g}, gradient [1][0] {x.grad[1][0].item():.15g}")
        loss = cross_entropy(logits, mixed, weight, label_smoothing=smoothing)
        print(f"weighted mixture, smoothing {smoothing}: {loss.item():.15g}")
    targets = torch.tensor(POSITIVE[:4], dtype=torch.float64)
    print(f"binary: {binary_cross_entropy_with_logits(logits, targets).item():.15g}")


def sklearn_values():
    from sklearn.metrics import average_precision_score
    from sklearn.utils.class_weight import compute_class_weight

    labels = np.array([0] * 7 + [1] * 2 + [3] * 1)
    print("balanced weights:", compute_class_weight("balanced", classes=np.unique(labels), y=labels).tolist())
    print("average precision:", average_precision_score(POSITIVE, SCORES, average=None).tolist())
    print("macro:", repr(float(average_precision_score(POSITIVE, SCORES, average="macro"))))
    empty = np.concatenate([POSITIVE, np.zeros((6, 1), dtype=int)], axis=1)
    scores = np.concatenate([SCORES, SCORES[:, :1]], axis=1)
    print("macro with a class of no positives:", repr(float(average_precision_score(empty, scores, average="macro"))))


for values in (torch_values, sklearn_values):
    try:
        values()
    except ImportError as error:
        print(f"{values.__name__}: {error}")
