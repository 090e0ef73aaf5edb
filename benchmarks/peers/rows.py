"""What is compared: the rows of the table, and the commands of each side."""

import dataclasses
import os

PYTORCH, KEPT, COMPILED = "PyTorch", "PyTorch, kept memory", "torch.compile, kept memory"
TENSORFLOW, DALI, OURS = "TensorFlow", "DALI on the CPU", "Trainyard"

# malloc gives nothing back, so that PyTorch does not fault its memory in anew at every step.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "100000000000", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_TOP_PAD_": "1000000000"}

# {peer: (script, mode, environment)}, in the order of the table's columns
TRAINING = {
    PYTORCH: ("train_torchvision.py", "eager", {}),
    KEPT: ("train_torchvision.py", "eager", KEEP_MEMORY),
    COMPILED: ("train_torchvision.py", "compile", KEEP_MEMORY),
    TENSORFLOW: ("train_tensorflow.py", "graph", {}),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison. `model` is the peers' name of the network, `ours` the name of the same one here; `floor` is the
    ratio to the best peer that must be reached."""

    group: str  # training, zoo or data: a table each; inference is compared by the script of that name
    model: str
    ours: str
    batch: int
    floor: float
    steps: int  # timed ones, about ten seconds of PyTorch on two cores
    dtype: str = "fp32"
    without: tuple = ()  # peers that do not have the network

    @property
    def name(self):
        parts = {"training": "", "zoo": "zoo-", "data": "data-"}[self.group] + self.model
        return parts + ("" if self.dtype == "fp32" else f"-{self.dtype}")

    def peers(self):
        return [peer for peer in TRAINING if peer not in self.without]

    def peer_command(self, python, folder, peer):
        """([command and arguments], environment beside the usual)"""
        script, mode, environment = TRAINING[peer]
        return [python, f"{folder}/{script}", self.model, str(self.batch), self.dtype, mode, str(self.steps)], environment

    def our_command(self, program, first_step_only=False):
        data = {"resnet20": ["--data_name=cifar10", "--num_classes=10"],
                "ssd300": ["--data_name=coco"]}.get(self.model, ["--data_name=imagenet", "--num_classes=1000"])
        command = [program, f"--model={self.ours}", *data, f"--batch_size={self.batch}", "--device=cpu"]
        command += ["--optimizer=momentum", "--weight_decay=1e-4"]
        if self.dtype == "bf16":
            command.append("--use_bf16")
        steps, warm_up = (1, 0) if first_step_only else (self.steps, 2)
        return command + [f"--num_batches={steps}", f"--num_warmup_batches={warm_up}"]


# Real files are not in the tree; where they are missing the rows fail.
SHARED_DATA = os.environ.get("TRAINYARD_SHARED_DATA", "../shared/data")
INPUT = {TENSORFLOW: "input_tensorflow.py", DALI: "input_dali.py"}
IMAGENET = os.path.join(SHARED_DATA, "imagenet_sample")
COCO = os.path.join(SHARED_DATA, "coco_tiny")


@dataclasses.dataclass(frozen=True)
class DataRow(Row):
    """Input alone: `model` names the case, `steps` are seconds, `flags` are ours beside the usual."""

    flags: tuple = ()
    threads: int = 2

    def peers(self):
        return list(INPUT)

    def peer_command(self, python, folder, peer):
        return [python, f"{folder}/{INPUT[peer]}", IMAGENET, str(self.batch), "224", str(self.threads), str(self.steps)], {}

    def our_command(self, program, first_step_only=False):
        return [program, "bench", "data", f"--data_dir={IMAGENET}", "--image_size=224", f"--batch_size={self.batch}",
                f"--num_threads={self.threads}", "--nodistortions", f"--seconds={0 if first_step_only else self.steps}", *self.flags]


@dataclasses.dataclass(frozen=True)
class BoxesRow(DataRow):
    """SSD's training input: images with boxes."""

    def peers(self):
        return [PYTORCH]

    def peer_command(self, python, folder, peer):
        return [python, f"{folder}/input_torchvision_boxes.py", COCO, str(self.batch), str(self.threads), str(self.steps)], {}

    def our_command(self, program, first_step_only=False):
        return [program, "bench", "data", f"--data_dir={COCO}", "--data_name=coco", f"--batch_size={self.batch}",
                f"--num_threads={self.threads}", f"--seconds={0 if first_step_only else self.steps}", *self.flags]


def zoo(model, steps, ours=None, in_keras=True):
    return Row("zoo", model, ours or model, 16, 1.05, steps, without=() if in_keras else (TENSORFLOW,))


ROWS = {row.name: row for row in [
    Row("training", "resnet50", "resnet50_v1.5", 32, 1.35, 3),
    Row("training", "resnet50", "resnet50_v1.5", 32, 1.20, 5, "bf16"),
    Row("training", "vgg16", "torchvision/vgg16", 8, 1.80, 3),
    Row("training", "inception_v3", "inception_v3", 16, 1.30, 4),
    Row("training", "mobilenet_v2", "mobilenet_v2", 32, 1.50, 8),
    Row("training", "densenet121", "densenet121", 16, 1.20, 5),
    Row("training", "alexnet", "torchvision/alexnet", 64, 1.10, 8),
    Row("training", "resnet20", "resnet20", 128, 1.15, 40),
    Row("training", "ssd300", "ssd300", 8, 1.40, 3, without=(TENSORFLOW,)),
    DataRow("data", "crops", "random crops to 224", 64, 1.35, 10),
    DataRow("data", "decoded", "the same, decoded images in memory", 64, 4.0, 10, flags=("--decoded_cache_mib=1024", "--warmup_epochs=1")),
    BoxesRow("data", "boxes", "SSD's parts of COCO's images to 300, with boxes", 8, 1.5, 10),
    # inception_v3 and densenet121 at batch 16 are in training already.
    zoo("resnet18", 8, in_keras=False),
    zoo("resnet50", 4, "resnet50_v1.5"),
    zoo("resnext50_32x4d", 4, in_keras=False),
    zoo("vgg16", 2, "torchvision/vgg16"),
    zoo("mobilenet_v2", 15),
    zoo("mobilenet_v3_large", 20),
    zoo("efficientnet_b0", 15),
    zoo("regnet_y_400mf", 20, in_keras=False),
    zoo("convnext_tiny", 3),
    zoo("vit_b_16", 2, in_keras=False),
]}


def choose(names):
    """The rows of these names and groups, in the table's order; without names those of training."""
    names = names or ["training"]
    known = {*ROWS, *(row.group for row in ROWS.values())}
    for name in names:
        if name not in known:
            raise SystemExit(f"compare: no row {name}; known: {' '.join(sorted(known))}")
    return [row for row in ROWS.values() if row.name in names or row.group in names]
