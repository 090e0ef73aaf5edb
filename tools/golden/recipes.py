#!/usr/bin/env python3
"""Writes what the originals of recipes/*.yaml do, for tests/recipes/recipes_test.py: recipes.py > tests/recipes/originals.json

For each recipe: the learning rate at each step, or at each epoch where the original changes it by the epoch; the size of the
training images in each epoch; the operations on images, in the words of `trainyard train --describe_input`; and further numbers by the names of our flags, "batch"
that of a step. Rates come from
PyTorch's and timm's own schedulers, composed as the originals compose them, and from formulas where the original is a program
that needs GPUs (DALI, Paddle, FFCV, tf_cnn_benchmarks); each names the file it was read from. Operations are read from the
transforms that torchvision and timm build. All trainings have 64 images in steps of 8, but for tf_cnn_benchmarks', whose own
schedule is for ImageNet. Needs torch, torchvision and timm (1.0).

"differences" says, line by line, what the recipe has in the place of what the original has; null: nothing. The test allows these alone.
"""
import json
import math
import sys

import numpy
import timm
import torch
import torchvision
from timm.data.transforms_factory import create_transform
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from torch.optim import lr_scheduler
from torchvision import transforms
from torchvision.transforms import InterpolationMode

STEPS = 8  # of an epoch
BATCH = 8
IMAGENET_IMAGES = 1281167
IMAGENET_BATCH = 256


def number(value):
    return f"{float(value):.6g}"


def scheduled(epochs, rate, make):
    """The rate of each epoch under a scheduler of PyTorch that is stepped behind each epoch, as in torchvision's train.py."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = make(optimizer)
    rates = []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def torchvision_cosine(epochs, rate):
    """references/classification/train.py: cosineannealinglr behind a linear warm-up of 5 epochs from a hundredth."""
    return scheduled(epochs, rate, lambda o: lr_scheduler.SequentialLR(o, [
        lr_scheduler.LinearLR(o, start_factor=0.01, total_iters=5),
        lr_scheduler.CosineAnnealingLR(o, T_max=epochs - 5, eta_min=0.0)], milestones=[5]))


def torchvision_steps(epochs, rate, size, gamma):
    return scheduled(epochs, rate, lambda o: lr_scheduler.StepLR(o, step_size=size, gamma=gamma))


def timm_cosine(epochs, rate, warmup_rate, least):
    """timm's scheduler as train.py and DeiT's main.py make it, stepped with epoch + 1 behind each epoch."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler, _ = create_scheduler_v2(optimizer, sched="cosine", num_epochs=epochs, warmup_epochs=5, warmup_lr=warmup_rate,
                                       min_lr=least, cooldown_epochs=0)
    rates = []
    for epoch in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step(epoch + 1)
    return rates


def ffcv_rates(epochs, rate):
    """train_imagenet.py of ffcv-imagenet: get_cyclic_lr(), and between epochs the line of train_loop()."""
    def at(epoch):
        return numpy.interp([epoch], [0, 2, epochs], [1e-4 * rate, rate, 0])[0]
    rates = []
    for epoch in range(epochs):
        rates += list(numpy.interp(numpy.arange(STEPS), [0, STEPS], [at(epoch), at(epoch + 1)]))
    return rates


def ffcv_sizes(epochs, start, end):
    """get_resolution() of the same file: a line from 160 to 192, at multiples of 32."""
    def at(epoch):
        if epoch <= start:
            return 160
        if epoch >= end:
            return 192
        return int(numpy.round(numpy.interp([epoch], [start, end], [160, 192])[0] / 32)) * 32
    return [at(epoch) for epoch in range(epochs)]


def piecewise_constant(step, boundaries, values):
    """TensorFlow's: a step that equals a boundary still has the value before it."""
    return values[sum(step > boundary for boundary in boundaries)]


def dali_rates():
    """nvutils/common.py of DALI's resnet-n: PiecewiseConstantDecayWithWarmup with LR_SCHEDULE."""
    rate = 0.1 * BATCH / 256
    boundaries = [float(STEPS) * epoch for epoch in (30, 60, 80)]
    values = [rate * factor for factor in (1.0, 0.1, 0.01, 0.001)]
    return [rate * step / (5 * STEPS) if step < 5 * STEPS else piecewise_constant(step, boundaries, values)
            for step in range(90 * STEPS)]


def paddle_rates():
    """lr_scheduler.py of Paddle's RN50v1.5: LinearWarmup from 0, then CosineAnnealingDecay, both by steps. The rate of 0.256 is
    that of one process of 256 images, and grows with the processes."""
    rate, warmup, steps = 0.256 * BATCH / 256, 5 * STEPS, 85 * STEPS
    return [rate * step / warmup if step < warmup else rate / 2 * (1 + math.cos(math.pi * (step - warmup) / steps))
            for step in range(90 * STEPS)]


def tf_cnn_rates():
    """models/resnet_model.py of tf_cnn_benchmarks: get_learning_rate(); at the first step of each epoch and the one behind."""
    rate, per_epoch = 0.128 * IMAGENET_BATCH / 256, IMAGENET_IMAGES / IMAGENET_BATCH
    boundaries = [int(per_epoch * epoch) for epoch in (30, 60, 80, 90)]
    values = [rate * factor for factor in (1, 0.1, 0.01, 0.001, 0.0001)]
    warmup = int(per_epoch * 5)
    rates = {}
    for epoch in range(90):
        for step in (int(per_epoch * epoch), int(per_epoch * epoch) + 1):
            rates[step] = rate * step / warmup if step < warmup else piecewise_constant(step, boundaries, values)
    return rates


def filled(fill):
    return ",".join(number(value) for value in ([0, 0, 0] if fill is None else fill))


def normalize(mean, std):
    return f"normalize mean={','.join(number(m) for m in mean)} std={','.join(number(s) for s in std)}"


IMAGENET = normalize((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
# Pillow counts from the centres of pixels and averages those under a shrunk one.
PILLOW = "antialias half_pixel_centers"


def operations(compose):
    """The lines of a pipeline of torchvision or timm."""
    lines = []
    for each in compose.transforms:
        name = type(each).__name__
        interpolation = getattr(each, "interpolation", None)
        # timm's "random": one of several for each image.
        interpolation = "drawn" if isinstance(interpolation, (tuple, list)) else getattr(interpolation, "value", interpolation)
        if name in ("RandomResizedCrop", "RandomResizedCropAndInterpolation"):
            area, aspect = each.scale, each.ratio
            lines.append(f"resized_crop area={number(area[0])}..{number(area[1])} "
                         f"aspect={number(aspect[0])}..{number(aspect[1])} attempts=10")
            lines.append(f"resize SIZE {interpolation} {PILLOW}")
        elif name == "RandomHorizontalFlip":
            lines.append(f"mirror p={number(each.p)}")
        elif name == "TrivialAugmentWide":
            lines.append(f"trivial_augment {interpolation} fill={filled(each.fill)}")
        elif name == "RandAugment" and hasattr(each, "num_ops"):
            lines.append(f"rand_augment operations={each.num_ops} magnitude={each.magnitude} of 30 {interpolation} "
                         f"fill={filled(each.fill)}")
        elif name == "AutoAugment":
            lines.append(f"auto_augment {each.policy.value} {interpolation} fill={filled(each.fill)}")
        elif name == "RandAugment":
            op = each.ops[0]
            names = [o.name for o in each.ops]
            lines.append(f"timm_rand_augment operations={each.num_layers} magnitude={op.magnitude} "
                         f"std={number(op.magnitude_std)}"
                         f"{' increasing' if 'SolarizeIncreasing' in names else ''} "
                         f"{'bicubic' if op.kwargs.get('resample', 0) == 3 else 'drawn'} "
                         f"fill={filled(op.kwargs['fillcolor'])}")
        elif name == "Normalize":
            lines.append(normalize([255 * float(m) for m in each.mean], [255 * float(s) for s in each.std]))
        elif name == "RandomErasing" and hasattr(each, "scale"):
            assert each.value == 0
            lines.append(f"random_erasing p={number(each.p)} area={number(each.scale[0])}..{number(each.scale[1])} "
                         f"aspect={number(each.ratio[0])}..{number(each.ratio[1])} zeros")
        elif name == "RandomErasing":
            aspect = [math.exp(a) for a in each.log_aspect_ratio]
            lines.append(f"random_erasing p={number(each.probability)} area={number(each.min_area)}..{number(each.max_area)} "
                         f"aspect={number(aspect[0])}..{number(aspect[1])} {'noise' if each.per_pixel else 'zeros'}")
        elif name == "Resize":
            lines.append(f"resize shorter_side={each.size} {interpolation} {PILLOW}")
        elif name == "CenterCrop":
            size = each.size if isinstance(each.size, (tuple, list)) else (each.size, each.size)
            lines.append(f"centre_crop {size[0]}x{size[1]}")
        else:
            assert name in ("ToTensor", "MaybeToTensor", "PILToTensor", "ConvertImageDtype"), name
    return lines


def torchvision_training(policy=None, erasing=0.0):
    """references/classification/presets.py: ClassificationPresetTrain."""
    bilinear = InterpolationMode.BILINEAR
    parts = [transforms.RandomResizedCrop(224, interpolation=bilinear), transforms.RandomHorizontalFlip(0.5)]
    if policy == "ta_wide":
        parts.append(transforms.TrivialAugmentWide(interpolation=bilinear))
    elif policy == "imagenet":
        parts.append(transforms.AutoAugment(policy=transforms.AutoAugmentPolicy("imagenet"), interpolation=bilinear))
    parts.append(transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)))
    if erasing > 0:
        parts.append(transforms.RandomErasing(p=erasing))
    return operations(transforms.Compose(parts))


def torchvision_validation(resize=256):
    return operations(transforms.Compose([
        transforms.Resize(resize, interpolation=InterpolationMode.BILINEAR), transforms.CenterCrop(224),
        transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))]))


def timm_training(policy, erasing=0.0, interpolation="random"):
    return operations(create_transform(224, is_training=True, auto_augment=policy, interpolation=interpolation,
                                       re_prob=erasing, re_mode="pixel", color_jitter=0.4))


def timm_validation(crop):
    return operations(create_transform(224, is_training=False, crop_pct=crop, interpolation="bicubic"))


def mixed(mixup, cutmix):
    return [f"mixup alpha={number(mixup)}", f"cutmix alpha={number(cutmix)}", "mixed by batches p=1 switch_to_cutmix=0.5"]


def of_timm(name):
    """The numbers of an optimizer as timm makes it."""
    made = create_optimizer_v2([torch.nn.Parameter(torch.zeros(2, 2))], opt=name, lr=1e-3, weight_decay=0)
    numbers = {**made.defaults, **made.param_groups[0]}
    beta1, beta2 = numbers["betas"]
    clip = {"clip_global_norm": numbers["max_grad_norm"]} if "max_grad_norm" in numbers else {}
    return {"adam_beta1": beta1, "adam_beta2": beta2, "adam_epsilon": numbers["eps"], **clip}


BY_PAIRS = {"mixed by batches p=1 switch_to_cutmix=0.5": "mixed by pairs p=1 switch_to_cutmix=0.5"}
recipes = {}


def rounded(rates):
    """Twelve digits, which is more than the test compares."""
    if isinstance(rates, dict):
        return {step: float(f"{rate:.12g}") for step, rate in rates.items()}
    return [float(f"{rate:.12g}") for rate in rates]


def recipe(name, by, rates, sizes, train, batches, validation, numbers, differences=None):
    recipes[name] = {"numbers": numbers, "by": by, "rates": rounded(rates), "sizes": sizes, "train": train, "batches": batches, "validation": validation,
                     "differences": differences or {}}


def torchvision_new(name, rate, resize, numbers):
    recipe(name, "epoch", torchvision_cosine(600, rate), [176] * 600, torchvision_training("ta_wide", 0.1),
           ["repeated_augmentation 4"] + mixed(0.2, 1), torchvision_validation(resize),
           {"batch": 1024, "label_smoothing": 0.1, **numbers}, BY_PAIRS)


torchvision_new("imagenet_torchvision_resnet50", 0.5, 232, {"momentum": 0.9, "weight_decay": 2e-5})
torchvision_new("imagenet_torchvision_convnext_tiny", 1e-3, 236,
                {"weight_decay": 0.05, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8})
recipe("imagenet_torchvision_mobilenet_v2", "epoch", torchvision_steps(300, 0.045, 1, 0.98), [224] * 300,
       torchvision_training(), [], torchvision_validation(), {"batch": 256, "momentum": 0.9, "weight_decay": 4e-5})
recipe("imagenet_torchvision_mobilenet_v3_large", "epoch", torchvision_steps(600, 0.064, 2, 0.973), [224] * 600,
       torchvision_training("imagenet", 0.2), [], torchvision_validation(),
       {"batch": 1024, "weight_decay": 1e-5, "rmsprop_decay": 0.9, "rmsprop_momentum": 0.9, "rmsprop_epsilon": 0.0316})

for name, epochs, rate, size, policy, mixup, more, numbers in (
        ("a1", 600, 5e-3, 224, "rand-m7-mstd0.5-inc1", 0.2, ["repeated_augmentation 3"],
         {"weight_decay": 0.01, "label_smoothing": 0.1, "stochastic_depth": 0.05}),
        ("a2", 300, 5e-3, 224, "rand-m7-mstd0.5-inc1", 0.1, ["repeated_augmentation 3"],
         {"weight_decay": 0.02, "label_smoothing": 0, "stochastic_depth": 0.05}),
        ("a3", 100, 8e-3, 160, "rand-m6-mstd0.5-inc1", 0.1, [], {"weight_decay": 0.02, "label_smoothing": 0})):
    recipe(f"imagenet_timm_resnet50_{name}", "epoch", timm_cosine(epochs, rate, 1e-4, 1e-6), [size] * epochs,
           timm_training(policy), more + mixed(mixup, 1), timm_validation(0.95),
           {"batch": 2048, "bce_target_threshold": 0.2, **of_timm("lamb"), **numbers},
           {**BY_PAIRS, f"resize SIZE drawn {PILLOW}": f"resize SIZE bicubic {PILLOW}"})

recipe("imagenet_deit_vit_b_16", "epoch", timm_cosine(300, 5e-4 * BATCH / 512, 1e-6, 1e-5), [224] * 300,
       timm_training("rand-m9-mstd0.5-inc1", 0.25, "bicubic"), ["repeated_augmentation 3"] + mixed(0.8, 1),
       timm_validation(0.875),
       {"batch": 1024, "weight_decay": 0.05, "label_smoothing": 0.1, "stochastic_depth": 0.1, "ema_decay": 0.99996,
        **of_timm("adamw")}, BY_PAIRS)

# ffcv/fields/decoders.py and transforms/utils/fast_crop.py: areas of 0.08 to 1, aspects of 3/4 to 4/3, ten draws, OpenCV's
# INTER_AREA; 256 of the shorter side's 224/256, which is what scaling that side to 293 cuts out.
FFCV_TRAINING = ["resized_crop area=0.08..1 aspect=0.75..1.33333 attempts=10", "resize SIZE area", "mirror p=0.5", IMAGENET]
FFCV_VALIDATION = ["resize shorter_side=293 area", "centre_crop 256x256", IMAGENET]
FFCV_NUMBERS = {"batch": 4096, "momentum": 0.9, "weight_decay": 1e-4, "label_smoothing": 0.1}
AREA = {"resize SIZE area": f"resize SIZE area {PILLOW}",
        "resize shorter_side=293 area": f"resize shorter_side=293 area {PILLOW}"}
recipe("imagenet_ffcv_resnet50_16", "step", ffcv_rates(16, 1.7), ffcv_sizes(16, 11, 13), FFCV_TRAINING, [], FFCV_VALIDATION, FFCV_NUMBERS,
       AREA)
recipe("imagenet_ffcv_resnet50_88", "step", ffcv_rates(88, 1.7), ffcv_sizes(88, 65, 76), FFCV_TRAINING, [], FFCV_VALIDATION, FFCV_NUMBERS,
       AREA)

# nvutils/image_processing.py: get_dali_pipeline().
DALI = normalize((123.68, 116.78, 103.94), (58.4, 57.12, 57.3))
recipe("imagenet_dali_resnet50", "step", dali_rates(), [224] * 90,
       ["resized_crop area=0.05..1 aspect=0.75..1.25 attempts=100", f"resize SIZE bilinear {PILLOW}", "mirror p=0.5", DALI], [],
       [f"resize shorter_side=256 bilinear {PILLOW}", "centre_crop 224x224", "mirror p=0.5 in validation, too", DALI],
       {"batch": 2048, "momentum": 0.9, "weight_decay": 2e-4}, {"mirror p=0.5 in validation, too": None})
# dali.py: HybridTrainPipe, HybridValPipe.
for name in "imagenet_paddle_resnet50", "imagenet_paddle_resnet50_sparse":
    recipe(name, "step", paddle_rates(), [224] * 90,
           ["resized_crop area=0.08..1 aspect=0.75..1.33333 attempts=100", f"resize SIZE bilinear {PILLOW}", "mirror p=0.5",
            IMAGENET], [], [f"resize shorter_side=256 bilinear {PILLOW}", "centre_crop 224x224", IMAGENET],
           {"batch": 2048, "momentum": 0.875, "weight_decay": 2**-15, "label_smoothing": 0.1, "fp16_loss_scale": 128})
# preprocessing.py: train_image(), eval_image(), distort_color(), normalized_image().
recipe("imagenet_tf_cnn_benchmarks_resnet50", "imagenet", tf_cnn_rates(), [224] * 90,
       ["distorted_bounding_box area=0.05..1 aspect=0.75..1.33 attempts=100 covered=0.1", "resize SIZE bilinear", "mirror p=0.5",
        "distort_colors brightness saturation hue contrast yiq alternating_order",
        normalize((127.5,) * 3, (127.5,) * 3)], [],
       ["resize both_sides_at_least=1.145_times_the_crop bilinear", "centre_crop 224x224", normalize((127.5,) * 3, (127.5,) * 3)],
       {"batch": 256, "momentum": 0.9, "weight_decay": 4e-5})

json.dump({"made_by": f"tools/golden/recipes.py: torch {torch.__version__.split('+')[0]}, "
                      f"torchvision {torchvision.__version__.split('+')[0]}, timm {timm.__version__}",
           "recipes": recipes}, sys.stdout, indent=None, separators=(",", ":"))
print()
