"""MLPerf's rules of v0.5 for the logs of a ResNet and of SSD, as far as a log tells whether they are kept.

The package mlperf_compliance 0.0.10 says what a line looks like, which tags there are and what each stands for, and has no
checker. The checker of v0.5 that MLPerf used knew five kinds of rules: a tag exactly once, at least once, values that a tag
must have, two tags in turns, and tags that are equally often there. Those are the rules below; which tags they are for follows
from the package's comments on the tags (kept in the comments here) and from its set of tags for ResNets.

    errors = check(text.splitlines())       # a list of sentences, empty for a log of a ResNet that keeps the rules
    errors = check_ssd(text.splitlines())   # of SSD

Usage: python3 tests/mlperf_v05_rules.py LOG
"""
import json
import re
import sys

# Of the package: RESNET_TAGS, and opt_weight_decay, eval_epoch_offset and train_checkpoint, which are tags of other benchmarks
# or names of constants.
RESNET_TAGS = set("""
run_start run_stop run_final run_set_random_seed run_clear_caches preproc_num_train_examples preproc_num_eval_examples
input_size input_batch_size input_order input_shard input_central_crop input_crop_uses_bboxes
input_distorted_crop_min_object_covered input_distorted_crop_aspect_ratio_range input_distorted_crop_area_range
input_distorted_crop_max_attempts input_mean_subtraction input_random_flip input_resize input_resize_aspect_preserving
input_bn_span opt_name opt_learning_rate opt_learning_rate_warmup_steps opt_momentum train_loop train_epoch eval_start
eval_size eval_target eval_accuracy eval_stop eval_offset model_hp_loss_fn model_l2_regularization model_exclude_bn_from_l2
model_hp_initial_shape model_hp_final_shape model_hp_initial_max_pool model_hp_begin_block model_hp_end_block
model_hp_block_type model_hp_projection_shortcut model_hp_shorcut_add model_hp_relu model_hp_conv2d_fixed_padding
model_hp_batch_norm model_hp_dense model_hp_resnet_topology
""".split())
MORE_TAGS = {"opt_weight_decay", "eval_epoch_offset", "train_checkpoint"}

# Of the package: SSD_TAGS. A submission purges caches itself: run_clear_caches need not be there.
SSD_TAGS = set("""
aspect_ratios backbone data_normalization_mean data_normalization_std eval_accuracy eval_iteration_accuracy eval_size eval_start
eval_stop eval_target feature_sizes input_batch_size input_bn_span input_order input_shard input_size loc_conf_out_channels
nms_max_detections nms_threshold num_cropping_iterations num_default_boxes num_defaults_per_cell opt_learning_rate
opt_learning_rate_warmup_steps opt_momentum opt_name opt_weight_decay random_flip_probability run_clear_caches run_final run_start
run_stop scales steps train_epoch train_loop
""".split())

# "Tags which should appear in absolutely every MLPerf model", and what a submission declares once.
EXACTLY_ONE = ["run_start", "run_stop", "run_final", "train_loop", "opt_name", "opt_momentum", "opt_learning_rate_warmup_steps",
               "input_batch_size", "preproc_num_train_examples", "preproc_num_eval_examples", "model_hp_loss_fn",
               "model_l2_regularization", "model_exclude_bn_from_l2"]
AT_LEAST_ONE = ["run_set_random_seed", "input_order", "input_size", "opt_learning_rate", "train_epoch", "eval_start", "eval_stop",
                "eval_size", "eval_accuracy", "eval_target", "model_hp_initial_shape", "model_hp_final_shape",
                "model_hp_initial_max_pool", "model_hp_begin_block", "model_hp_end_block", "model_hp_block_type",
                "model_hp_projection_shortcut", "model_hp_shorcut_add", "model_hp_relu", "model_hp_conv2d_fixed_padding",
                "model_hp_batch_norm", "model_hp_dense", "model_hp_resnet_topology"]
# With images from files.
AT_LEAST_ONE_OF_DATA = ["input_distorted_crop_min_object_covered", "input_distorted_crop_aspect_ratio_range",
                        "input_distorted_crop_area_range", "input_distorted_crop_max_attempts", "input_random_flip",
                        "input_resize", "input_resize_aspect_preserving", "input_central_crop", "input_mean_subtraction"]
# In turns, the first one first.
PAIRS = [("eval_start", "eval_stop"), ("model_hp_begin_block", "model_hp_end_block")]
COUNT_SAME = [["eval_start", "eval_stop", "eval_accuracy", "eval_size", "eval_target"],
              ["model_hp_begin_block", "model_hp_end_block", "model_hp_shorcut_add", "model_hp_block_type"]]


def is_number(value, least=0, most=float("inf")):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


SHAPES = re.compile(r"\(\d+, \d+, \d+\) -> \(\d+, \d+, \d+\)")

VALUES = {
    "run_start": lambda v: v is None,
    "run_stop": lambda v: isinstance(v, dict) and isinstance(v.get("success"), bool),
    "run_final": lambda v: v is None,
    "run_set_random_seed": lambda v: isinstance(v, int),
    "input_order": lambda v: v is None,
    "input_size": lambda v: isinstance(v, int) and v >= 0,
    "input_batch_size": is_count,
    "input_bn_span": is_count,
    "input_shard": is_count,
    "preproc_num_train_examples": is_count,
    "preproc_num_eval_examples": is_count,
    # Rules of the benchmark: SGD with momentum, a categorical cross-entropy, L2 without batch norms.
    "opt_name": lambda v: v == "stochastic_gradient_descent_with_momentum",
    "opt_momentum": lambda v: is_number(v, 0, 1),
    "opt_learning_rate": is_number,
    "opt_learning_rate_warmup_steps": lambda v: isinstance(v, int) and v >= 0,
    "opt_weight_decay": is_number,
    "model_hp_loss_fn": lambda v: v == "categorical_cross_entropy",
    "model_l2_regularization": is_number,
    "model_exclude_bn_from_l2": lambda v: v is True,
    "train_loop": lambda v: v is None,
    "train_epoch": lambda v: (isinstance(v, int) and v >= 0) or (isinstance(v, str) and v.split(",")[0].isdigit()),
    "eval_start": lambda v: v is None or is_number(v),
    "eval_stop": lambda v: v is None or is_number(v),
    "eval_size": is_count,
    "eval_target": lambda v: is_number(v, 0, 1),
    "eval_accuracy": lambda v: isinstance(v, dict) and is_number(v.get("value"), 0, 1) and isinstance(v.get("epoch"), int),
    "input_resize": lambda v: isinstance(v, list) and len(v) == 2 and all(map(is_count, v)),
    "input_central_crop": lambda v: isinstance(v, list) and len(v) == 2 and all(map(is_count, v)),
    "input_resize_aspect_preserving": lambda v: isinstance(v, dict) and is_count(v.get("min")),
    "input_mean_subtraction": lambda v: v == [123.68, 116.78, 103.94],
    "input_distorted_crop_min_object_covered": lambda v: v == 0.1,
    "input_distorted_crop_aspect_ratio_range": lambda v: v == [0.75, 1.33],
    "input_distorted_crop_area_range": lambda v: v == [0.05, 1.0],
    "input_distorted_crop_max_attempts": lambda v: v == 100,
    "model_hp_block_type": lambda v: v == "bottleneck_block",
    "model_hp_begin_block": lambda v: v == {"block_type": "bottleneck_block"},
    "model_hp_end_block": lambda v: isinstance(v, str) and v.startswith(" Block Output: ("),
    "model_hp_resnet_topology": lambda v: isinstance(v, str) and v.startswith(" Block Input: ("),
    "model_hp_projection_shortcut": lambda v: isinstance(v, str) and SHAPES.fullmatch(v),
    "model_hp_initial_max_pool": lambda v: isinstance(v, str) and SHAPES.fullmatch(v),
    "model_hp_conv2d_fixed_padding": lambda v: (isinstance(v, str) and SHAPES.fullmatch(v)) or (
        isinstance(v, dict) and set(v) == {"stride", "filters", "initializer", "use_bias"} and
        v["initializer"] == "truncated_normal" and v["use_bias"] is False),
    "model_hp_batch_norm": lambda v: isinstance(v, dict) and set(v) == {
        "shape", "momentum", "epsilon", "center", "scale", "training"} and v["momentum"] == 0.9 and v["epsilon"] == 1e-5 and
        v["center"] is True and v["scale"] is True,
    "model_hp_dense": lambda v: v == 1001,
    "model_hp_final_shape": lambda v: v == [1001],
    "model_hp_initial_shape": lambda v: isinstance(v, list) and len(v) == 3 and 3 in v,
}

LINE = re.compile(r"^:::MLPv0\.5\.0 ([a-z]+) (\d+\.\d{9}) \(([^():\s]+):(\d+)\) ([A-Za-z0-9_]+)(?:: (.*))?$")


def parse(lines, errors, expected="resnet", tags=None):
    """[(time, tag, value)] of the lines of a log; others are none of it."""
    log = []
    for line in lines:
        if ":::MLP" not in line:
            continue
        found = LINE.match(line)
        if not found:
            errors.append(f"not a line of the format: {line}")
            continue
        benchmark, seconds, _, _, tag, text = found.groups()
        value = None
        if text is not None:
            try:
                value = json.loads(text)
            except ValueError:
                errors.append(f"the value is no JSON: {line}")
                continue
        if benchmark != expected:
            errors.append(f"another benchmark: {line}")
        if tag not in (tags or RESNET_TAGS | MORE_TAGS):
            errors.append(f"no tag of {expected}'s: {line}")
        log.append((float(seconds), tag, value))
    return log


def check_order(log, errors):
    tags = [tag for _, tag, _ in log]

    def place(tag, last=False):
        if tag not in tags:
            return -1
        return len(tags) - 1 - tags[::-1].index(tag) if last else tags.index(tag)

    # run_final "should be the last tag emitted"; run_stop "when a submission has reached the stopping criteria".
    if tags and tags[-1] != "run_final":
        errors.append(f"the last tag is {tags[-1]}, not run_final")
    if place("run_stop") != len(tags) - 2:
        errors.append("run_stop does not stand in front of run_final")
    chain = ["run_start", "train_loop", "eval_start", "run_stop", "run_final"]
    places = [place(tag) for tag in chain]
    if places != sorted(places):
        errors.append(f"not in the order {' '.join(chain)}")
    # run_start is "prior to performing any work which the MLPerf rules state must be timed".
    for tag in ["run_set_random_seed", "input_order", "input_batch_size", "preproc_num_train_examples"]:
        if -1 < place(tag) < place("run_start"):
            errors.append(f"{tag} comes in front of run_start")
    for tag in ["opt_name", "model_hp_loss_fn", "model_hp_initial_shape", "input_batch_size"]:
        if place(tag) > place("train_loop"):
            errors.append(f"{tag} comes behind train_loop")
    # An evaluation is start, stop, size, accuracy, target, with nothing of another one between.
    expected = ["eval_start", "eval_stop", "eval_size", "eval_accuracy", "eval_target"]
    of_evaluations = [tag for tag in tags if tag in expected]
    if of_evaluations != expected * (len(of_evaluations) // len(expected)):
        errors.append(f"evaluations are not each {' '.join(expected)}")


def check_values(log, errors):
    for _, tag, value in log:
        if tag in VALUES and not VALUES[tag](value):
            errors.append(f"{tag} has the value {json.dumps(value)}")
    accuracies = [value["value"] for _, tag, value in log if tag == "eval_accuracy" and isinstance(value, dict)]
    targets = {json.dumps(value) for _, tag, value in log if tag == "eval_target"}
    if len(targets) > 1:
        errors.append("eval_target changes")
    stopped = [value for _, tag, value in log if tag == "run_stop"]
    if stopped and isinstance(stopped[0], dict) and accuracies and len(targets) == 1:
        reached = max(accuracies) >= json.loads(targets.pop())
        if stopped[0].get("success") is not reached:
            errors.append(f"success is {stopped[0].get('success')}, the best accuracy {max(accuracies)}")
    epochs = [value for _, tag, value in log if tag == "train_epoch"]
    numbers = [value if isinstance(value, int) else int(value.split(",")[0]) for value in epochs if value is not None]
    if numbers != list(range(len(numbers))):
        errors.append("train_epoch does not count from 0")


def check(lines, with_data=True):
    errors = []
    log = parse(lines, errors)
    count = {}
    for _, tag, _ in log:
        count[tag] = count.get(tag, 0) + 1
    for tag in EXACTLY_ONE:
        if count.get(tag, 0) != 1:
            errors.append(f"{tag} is there {count.get(tag, 0)} times, not once")
    for tag in AT_LEAST_ONE + (AT_LEAST_ONE_OF_DATA if with_data else []):
        if count.get(tag, 0) == 0:
            errors.append(f"{tag} is missing")
    for first, second in PAIRS:
        wanted = first
        for _, tag, _ in log:
            if tag in (first, second):
                if tag != wanted:
                    errors.append(f"{tag} where {wanted} is expected")
                    break
                wanted = second if tag == first else first
        else:
            if wanted == second:
                errors.append(f"a last {second} is missing")
    for tags in COUNT_SAME:
        if len({count.get(tag, 0) for tag in tags}) > 1:
            errors.append("not equally often: " + ", ".join(f"{tag} {count.get(tag, 0)}" for tag in tags))
    times = [seconds for seconds, _, _ in log]
    if times != sorted(times):
        errors.append("times go back")
    started = [seconds for seconds, tag, _ in log if tag == "run_start"]
    stopped = [seconds for seconds, tag, _ in log if tag == "run_stop"]
    if started and stopped and not 0 < stopped[0] - started[0] < 365 * 24 * 3600:
        errors.append("the time of the run is none that can be")
    check_order(log, errors)
    check_values(log, errors)
    return errors


# What the reference of SSD has: ssd_constants.py.
SSD_VALUES = {
    "backbone": "resnet34",
    "loc_conf_out_channels": [256, 512, 512, 256, 256, 256],
    "num_defaults_per_cell": [4, 6, 6, 6, 4, 4],
    "feature_sizes": [38, 19, 10, 5, 3, 1],
    "steps": [8, 16, 32, 64, 100, 300],
    "scales": [21, 45, 99, 153, 207, 261, 315],
    "aspect_ratios": [[2], [2, 3], [2, 3], [2, 3], [2], [2]],
    "num_default_boxes": 8732,
    "num_cropping_iterations": 50,
    "random_flip_probability": 0.5,
    "data_normalization_mean": [0.485, 0.456, 0.406],
    "data_normalization_std": [0.229, 0.224, 0.225],
    "nms_threshold": 0.5,
    "nms_max_detections": 200,
    "opt_name": "stochastic_gradient_descent_with_momentum",
}


def check_ssd(lines):
    errors = []
    log = parse(lines, errors, "ssd", SSD_TAGS)
    count = {}
    for _, tag, _ in log:
        count[tag] = count.get(tag, 0) + 1
    for tag in sorted(SSD_TAGS - {"run_clear_caches"}):
        if count.get(tag, 0) == 0:
            errors.append(f"{tag} is missing")
    for tag in ["run_start", "run_stop", "run_final", "train_loop", "opt_name", "opt_momentum", "opt_weight_decay",
                "opt_learning_rate_warmup_steps", "input_batch_size", "input_bn_span", "backbone"]:
        if count.get(tag, 0) > 1:
            errors.append(f"{tag} is there {count[tag]} times, not once")
    evaluations = [tag for _, tag, _ in log if tag.startswith("eval_") or tag.startswith("nms_")]
    # The original measures before the evaluation stops.
    expected = ["eval_start", "nms_threshold", "nms_max_detections", "eval_accuracy", "eval_iteration_accuracy", "eval_stop",
                "eval_size", "eval_target"]
    if evaluations != expected * (len(evaluations) // len(expected)):
        errors.append(f"evaluations are not each {' '.join(expected)}")
    for _, tag, value in log:
        if tag in SSD_VALUES and value != SSD_VALUES[tag]:
            errors.append(f"{tag} has the value {json.dumps(value)}, not {json.dumps(SSD_VALUES[tag])}")
        if tag == "eval_accuracy" and not (isinstance(value, dict) and set(value) == {"epoch", "value"}):
            errors.append(f"{tag} has the value {json.dumps(value)}")
        if tag == "eval_iteration_accuracy" and not (isinstance(value, dict) and set(value) == {"iteration", "value"}):
            errors.append(f"{tag} has the value {json.dumps(value)}")
        if tag in ("eval_start", "eval_stop") and not isinstance(value, int):
            errors.append(f"{tag} has no epoch")
    tags = [tag for _, tag, _ in log]
    if tags[-2:] != ["run_stop", "run_final"] or tags[:1] != ["run_start"]:
        errors.append("a run does not begin with run_start, or end with run_stop and run_final")
    times = [seconds for seconds, _, _ in log]
    if times != sorted(times):
        errors.append("times go back")
    return errors


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as log_file:
        found_errors = check(log_file.read().splitlines())
    print("\n".join(found_errors) or "The log keeps the rules.")
    sys.exit(1 if found_errors else 0)
