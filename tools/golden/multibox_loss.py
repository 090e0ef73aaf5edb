#!/usr/bin/env python3
"""SSD's loss as tf_cnn_benchmarks computes it, for trainyard/nn/execution/multibox_loss_test.cpp:
multibox_loss.py > trainyard/nn/testdata/multibox_loss.txt

Needs tensorflow. Predictions and targets are formulas (drawn.py; the test computes the same). The lines:
  loss CLASS_LOSS BOX_LOSS
  gradient NUMBER...       of their sum, for [IMAGES, BOXES, 4 + CLASSES] predictions

Huber's loss and the cross entropy are those of tf.compat.v1.losses, in float. The hardest boxes are found by sorting
twice: the rank of each box among the losses of those without an object.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy
import tensorflow as tf

import drawn

IMAGES, BOXES, CLASSES = 3, 40, 7
# Image 1 has so many objects that 3 times as many boxes without one are not there.
THRESHOLDS = [0.7, 0.1, 0.85]

output = tf.constant(3 * drawn.draw("multibox output", (IMAGES, BOXES, 4 + CLASSES)), tf.float32)
targets = tf.constant(drawn.draw("multibox targets", (IMAGES, BOXES, 4)), tf.float32)
numbers = drawn.draw("multibox classes", (IMAGES, BOXES))
classes = numpy.zeros((IMAGES, BOXES), numpy.int32)
for image, threshold in enumerate(THRESHOLDS):
    part = (numbers[image] - threshold) / (1 - threshold)
    classes[image] = numpy.where(part > 0, 1 + numpy.floor(part * (CLASSES - 1)), 0)
matched = tf.constant((classes > 0).sum(1), tf.float32)
assert matched.numpy().min() > 0

losses = tf.compat.v1.losses
with tf.GradientTape() as tape:
    tape.watch(output)
    offsets, scores = tf.split(output, [4, CLASSES], 2)
    has_object = tf.cast(classes > 0, tf.float32)
    huber = losses.huber_loss(targets, offsets, reduction=losses.Reduction.NONE)
    box_loss = tf.reduce_mean(tf.reduce_sum(tf.reduce_sum(huber, 2) * has_object, 1) / matched)
    entropy = losses.sparse_softmax_cross_entropy(classes, scores, reduction=losses.Reduction.NONE)
    rank = tf.argsort(tf.argsort(entropy * (1 - has_object), direction="DESCENDING"))
    count = tf.minimum(3 * tf.cast(matched, tf.int32), BOXES)
    hard = tf.cast(rank < count[:, None], tf.float32)
    class_loss = tf.reduce_mean(tf.reduce_sum(entropy * (has_object + hard), 1) / matched)
    loss = class_loss + box_loss
gradient = tape.gradient(loss, output).numpy().flatten()
print("loss %.9g %.9g" % (class_loss.numpy(), box_loss.numpy()))
print("gradient " + " ".join("%.7g" % number for number in gradient))
