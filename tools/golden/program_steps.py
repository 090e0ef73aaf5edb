#!/usr/bin/env python3
"""Writes what 20 steps of a small network give, for frontends/paddle/program_test.cpp:
program_steps.py torch > trainyard/frontends/testdata/program_steps_torch.txt
program_steps.py paddle > trainyard/frontends/testdata/program_steps_paddle.txt
program_steps.py rates > trainyard/frontends/testdata/program_rates.txt

All in float64. torch: the formulas of NVIDIA DALI's PaddlePaddle example, written down with PyTorch's layers alone: a
smoothed target times log softmax, g + weight_decay w, momentum, warm-up and cosine. paddle (paddlepaddle==3.3.1): its
own operators for all of these but the smoothed target, which is compared. rates: its schedule over 90 epochs of 7 steps, every 13th step. Weights and images are
sines, so that no data need be kept. A line of steps: step, rate, loss, top1, top5; then the sum and the sum of squares of
each parameter at the end.
"""
import math
import sys

import numpy

STEPS, EPOCHS, WARMUP_EPOCHS, STEPS_PER_EPOCH, BATCH, CLASSES = 20, 5, 2, 4, 6, 7
RATE, START_RATE, MOMENTUM, DECAY, EPSILON = 0.256, 0.01, 0.875, 2.0**-15 * 64, 0.1
SHAPES = [("conv1.weight", (4, 3, 3, 3)), ("bn1.weight", (4,)), ("bn1.bias", (4,)), ("conv2.weight", (4, 4, 3, 3)),
          ("bn2.weight", (4,)), ("bn2.bias", (4,)), ("fc.weight", (CLASSES, 4)), ("fc.bias", (CLASSES,))]


def sines(shape, frequency, phase, size=0.4, mean=0.0):
    return mean + size * numpy.sin(frequency * numpy.arange(math.prod(shape), dtype=numpy.float64) + phase).reshape(shape)


def start(index, name, shape):
    return sines(shape, 1.1 + 0.1 * index, 0.5 * index, mean=1.0 if name.startswith("bn") and name.endswith("weight") else 0.0)


def images(step):
    return sines((BATCH, 3, 6, 6), 0.7 + 0.01 * step, 0.3 * step, size=1.0)


def labels(step):
    return (numpy.arange(BATCH) * 3 + step) % CLASSES


def rate(step):
    warmup = round(WARMUP_EPOCHS * STEPS_PER_EPOCH)
    if step < warmup:
        return START_RATE + (RATE - START_RATE) * step / warmup
    return RATE / 2 * (1 + math.cos(math.pi * (step - warmup) / ((EPOCHS - WARMUP_EPOCHS) * STEPS_PER_EPOCH)))


def accuracy(logits, wanted, k):
    best = numpy.argsort(-logits, axis=1)[:, :k]
    return float(numpy.mean([wanted[i] in best[i] for i in range(len(wanted))]))


def with_torch():
    import torch
    import torch.nn.functional as F
    p = {name: torch.tensor(start(i, name, shape), requires_grad=True) for i, (name, shape) in enumerate(SHAPES)}
    velocity = {name: torch.zeros_like(value) for name, value in p.items()}
    for step in range(STEPS):
        x, y = torch.tensor(images(step)), torch.tensor(labels(step))
        def norm(value, name):
            return F.batch_norm(value, None, None, p[name + ".weight"], p[name + ".bias"], True, 0, 1e-5)
        h = F.relu(norm(F.conv2d(x, p["conv1.weight"], padding=1), "bn1"))
        h = F.relu(norm(F.conv2d(h, p["conv2.weight"], padding=1), "bn2") + h)
        logits = h.mean((2, 3)) @ p["fc.weight"].T + p["fc.bias"]
        target = F.one_hot(y, CLASSES).double() * (1 - EPSILON) + EPSILON / CLASSES
        loss = -(target * logits.log_softmax(1)).sum(1).mean()
        gradients = torch.autograd.grad(loss, list(p.values()))
        with torch.no_grad():
            for (name, value), gradient in zip(p.items(), gradients):
                decay = 0 if name.startswith("bn") else DECAY
                velocity[name] = MOMENTUM * velocity[name] + gradient + decay * value
                value -= rate(step) * velocity[name]
        shown = logits.detach().numpy()
        print(step, repr(rate(step)), repr(loss.item()), accuracy(shown, labels(step), 1), accuracy(shown, labels(step), 5))
    return {name: value.detach().numpy() for name, value in p.items()}


def paddle_schedule(paddle, epochs, warmup_epochs, steps, start_rate):
    lr = paddle.optimizer.lr
    return lr.LinearWarmup(lr.CosineAnnealingDecay(RATE, T_max=(epochs - warmup_epochs) * steps),
                           warmup_steps=round(warmup_epochs * steps), start_lr=start_rate, end_lr=RATE)


def with_paddle():
    import paddle
    import paddle.nn.functional as F
    paddle.set_device("cpu")
    paddle.set_default_dtype("float64")
    nn, Attr, Assign = paddle.nn, paddle.ParamAttr, paddle.nn.initializer.Assign
    values = {name: start(i, name, shape) for i, (name, shape) in enumerate(SHAPES)}

    def norm(name):
        def attr(part):
            return Attr(initializer=Assign(values[f"{name}.{part}"]), regularizer=paddle.regularizer.L2Decay(0.0))
        return nn.BatchNorm2D(4, momentum=0.9, epsilon=1e-5, weight_attr=attr("weight"), bias_attr=attr("bias"))

    def convolution(name, channels):
        return nn.Conv2D(channels, 4, 3, padding=1, bias_attr=False,
                         weight_attr=Attr(initializer=Assign(values[name + ".weight"])))
    conv1, bn1, conv2, bn2 = convolution("conv1", 3), norm("bn1"), convolution("conv2", 4), norm("bn2")
    fc = nn.Linear(4, CLASSES, weight_attr=Attr(initializer=Assign(values["fc.weight"].T.copy())),
                   bias_attr=Attr(initializer=Assign(values["fc.bias"])))
    layers = {"conv1": conv1, "bn1": bn1, "conv2": conv2, "bn2": bn2, "fc": fc}
    schedule = paddle_schedule(paddle, EPOCHS, WARMUP_EPOCHS, STEPS_PER_EPOCH, START_RATE)
    optimizer = paddle.optimizer.Momentum(schedule, MOMENTUM, weight_decay=DECAY,
                                          parameters=[p for layer in layers.values() for p in layer.parameters()])
    for step in range(STEPS):
        x, y = paddle.to_tensor(images(step)), paddle.to_tensor(labels(step)).reshape([-1, 1])
        h = F.relu(bn1(conv1(x)))
        h = F.relu(bn2(conv2(h)) + h)
        logits = fc(h.mean([2, 3]))
        one_hot = F.one_hot(y, CLASSES).reshape([-1, CLASSES])
        target = one_hot.astype("float64") * (1 - EPSILON) + EPSILON / CLASSES
        # label_smooth computes the same with constants of 32 bits, also for targets of 64.
        smoothed = F.label_smooth(one_hot.astype("float32"), epsilon=EPSILON)
        assert abs(smoothed.astype("float64") - target).max().item() < 1e-7
        # As the example writes it, up to the order of mean and sum.
        loss = (paddle.mean(-F.log_softmax(logits, axis=-1) * target, axis=-1) * CLASSES).mean()
        top = [paddle.metric.accuracy(logits.astype("float32"), y, k=k).item() for k in (1, 5)]
        print(step, repr(float(schedule())), repr(loss.item()), *[round(value * BATCH) / BATCH for value in top])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        schedule.step()
    ended = {f"{name}.{part}": getattr(layer, part).numpy() for name, layer in layers.items() for part in ("weight", "bias")
             if getattr(layer, part) is not None}
    ended["fc.weight"] = ended["fc.weight"].T
    return ended


def show_parameters(parameters):
    for name, _ in SHAPES:
        value = parameters[name]
        print(name, repr(float(value.sum())), repr(float((value * value).sum())))


if __name__ == "__main__":
    print("#", " ".join(["tools/golden/program_steps.py", *sys.argv[1:]]))
    if sys.argv[1] == "rates":
        import paddle
        for start_rate in (0.0, 0.016):
            schedule = paddle_schedule(paddle, 90, 5, 7, start_rate)
            for step in range(90 * 7):
                if step % 13 == 0 or step in (34, 35, 36, 629):
                    print(repr(start_rate), step, repr(float(schedule())))
                schedule.step()
    else:
        show_parameters(with_torch() if sys.argv[1] == "torch" else with_paddle())
