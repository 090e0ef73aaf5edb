#!/usr/bin/env python3
"""Do the recipes learn? Each one's model, loss, optimizer, decay and schedule, without augmentation, on 32 fixed images of 64
pixels, which the network has to know by heart: after 300 steps at least 30 of them are right.

Usage: tests/recipes/learning_test.py PROGRAM (build/trainyard) [--all | NAME...]     without names: two small ones

An epoch is a step, so that the recipe's schedule is stretched over the 300 steps. Its rate is for its own batch, and is scaled to
32 images as the source says: linearly, or by the square root for LAMB (You et al., 2020) and for AdamW where no rule is given.
The models' own schedules of tf_cnn_benchmarks and DALI end after 80 epochs, and are stretched in the same way. Averages of the
weights, which are for long trainings, are left out, and 32-bit floats are used. The statistics of batch norms are those of the last
weights: torchvision's MobileNetV3 follows them with a hundredth a step, which is too slow for 300.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import recipe_files

SMALL = ["imagenet_torchvision_mobilenet_v2", "imagenet_torchvision_mobilenet_v3_large"]
STEPS, IMAGES, RIGHT = 300, 32, 30
AUGMENTATION = re.compile(r"auto_augment|rand_augment|random_erasing|mixup|cutmix|repeated_augmentation|progressive_sizes|"
                          r"stochastic_depth|distortions|eval_resize_size|resize_method")
WITHOUT_BATCH_NORM = re.compile(r"vit_|convnext")
NOT_HERE = re.compile(r"ema_|average_every|use_fp16|fp16_|loss_scale_rule|batch_size$|micro_steps|num_epochs$|init_learning_rate")


def arguments_of(name):
    """The recipe's flags for this test."""
    flags = recipe_files.read(recipe_files.RECIPES / f"{name}.yaml")
    batch = int(flags["batch_size"]) * int(flags.get("micro_steps", 1))
    kept = {flag: value for flag, value in flags.items() if not AUGMENTATION.match(flag) and not NOT_HERE.match(flag)}
    if "init_learning_rate" in flags:
        share = 1.0 if "learning_rate_scaling" in flags else IMAGES / batch
        if flags["optimizer"] in ("lamb", "torch_adamw"):
            share = share ** 0.5
        kept["init_learning_rate"] = repr(float(flags["init_learning_rate"]) * share)
        for flag in "warmup_learning_rate", "minimum_learning_rate":
            if flag in kept:
                kept[flag] = repr(float(flags[flag]) * share)
    else:
        rate = {"resnet50": 0.128, "dali/resnet50": 0.1}[flags["model"]] * IMAGES / 256
        kept["piecewise_learning_rate_schedule"] = f"{rate};100;{rate / 10};200;{rate / 100};267;{rate / 1000}"
        kept["num_learning_rate_warmup_epochs"] = "17"
    no_change = ["--random_crop_area=1,1", "--random_crop_aspect_ratio=1,1", "--flip=none", "--nodistortions",
                 "--eval_resize_size=64", "--image_size=64"]
    return [f"--{flag}={value}" for flag, value in kept.items()] + no_change


def learn(program, folder, name):
    """Returns the images that are right after the steps."""
    done = subprocess.run(
        [program, "train", *arguments_of(name), f"--data_dir={folder}", "--device=cpu", f"--batch_size={IMAGES}",
         f"--num_epochs={STEPS}", f"--eval_during_training_every_n_epochs={STEPS}", "--train_dir=", "--keep_best=none",
         *([] if WITHOUT_BATCH_NORM.search(name) else ["--recalibrate_batch_norm=1"]), "--display_every=100"],
        capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, f"{name}: {done.stderr}"
    shares = re.findall(r"Accuracy @ 1 = ([0-9.]+) .*\[32 examples\]", done.stdout)
    assert shares, done.stdout
    return round(float(shares[-1]) * IMAGES)


def main():
    program, asked = os.path.abspath(sys.argv[1]), sys.argv[2:]
    names = asked or SMALL
    if asked == ["--all"]:
        names = sorted(path.stem for path in recipe_files.RECIPES.glob("imagenet_*.yaml"))
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        images = recipe_files.make_images(program, pathlib.Path(folder), IMAGES, 64)
        for name in names:
            begin = time.monotonic()
            right = learn(program, images, name)
            print(f"{name}: {right} of {IMAGES} right after {STEPS} steps, {time.monotonic() - begin:.0f} s", flush=True)
            if right < RIGHT:
                failed.append(name)
    if failed:
        print(f"fewer than {RIGHT} of {IMAGES}: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
