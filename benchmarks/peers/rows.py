"""What is compared: the rows of the table, and the commands of each side."""

import dataclasses
import os

PYTORCH, COMPILED, AUTOTUNED, TENSORFLOW = "PyTorch", "torch.compile", "torch.compile, max-autotune", "TensorFlow"
DALI, OURS = "DALI on the CPU", "Trainyard"
# Ours with one thread, and the first step of a machine on which nothing was measured before.
ONE_THREAD, UNPREPARED = "Trainyard, one thread", "Trainyard, no kept choices"

# malloc gives nothing back, so that a peer does not fault its memory in again at every step.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "100000000000", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_TOP_PAD_": "1000000000"}

# {peer: (script, mode)}, in the order of the table's columns; all keep their memory
TRAINING = {
    PYTORCH: ("train_torchvision.py", "eager"),
    COMPILED: ("train_torchvision.py", "compile"),
    AUTOTUNED: ("train_torchvision.py", "autotune"),
    TENSORFLOW: ("train_tensorflow.py", "graph"),
}


@dataclasses.dataclass(frozen=True)
class Level:
    """Instructions that all programs may use alike: what hides the higher ones from us, and from the libraries of peers."""

    dtype: str
    wanted: float  # ratio to the best peer
    ours: dict = dataclasses.field(default_factory=dict)
    theirs: dict = dataclasses.field(default_factory=dict)


LEVELS = {
    "fp32": Level("fp32", 1.35),
    "bf16": Level("bf16", 1.30),
    "avx512": Level("fp32", 1.35, {"TRAINYARD_MAX_CPU_ISA": "avx512"}, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "avx512"}),
    "avx2": Level("fp32", 1.35, {"TRAINYARD_MAX_CPU_ISA": "avx2"}, {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}),
    "bf16-avx512": Level("bf16", 1.30, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison. `model` is the peers' name of the network, `ours` the name of the same one here."""

    group: str  # training, zoo or data; inference is compared by the script of that name
    model: str
    ours: str
    batch: int
    steps: int  # timed ones, about ten seconds of PyTorch on two cores
    level: str = "fp32"
    without: tuple = ()  # peers that do not have the network

    @property
    def name(self):
        return self.model + ("" if self.level == "fp32" else f"-{self.level}")

    @property
    def dtype(self):
        return LEVELS[self.level].dtype

    @property
    def floor(self):
        return LEVELS[self.level].wanted

    def peers(self):
        return [peer for peer in TRAINING if peer not in self.without]

    def own_sides(self):
        """Sides of ours that are measured once."""
        return [ONE_THREAD, UNPREPARED]

    def our_environment(self):
        return LEVELS[self.level].ours

    def peer_command(self, python, folder, peer):
        """([command and arguments], environment beside the usual)"""
        script, mode = TRAINING[peer]
        command = [python, f"{folder}/{script}", self.model, str(self.batch), self.dtype, mode, str(self.steps)]
        return command, {**KEEP_MEMORY, **LEVELS[self.level].theirs}

    def our_command(self, program, first_step_only=False, threads=None):
        data = {"resnet20": ["--data_name=cifar10", "--num_classes=10"],
                "ssd300": ["--data_name=coco"]}.get(self.model, ["--data_name=imagenet", "--num_classes=1000"])
        command = [program, f"--model={self.ours}", *data, f"--batch_size={self.batch}", "--device=cpu"]
        command += ["--optimizer=momentum", "--weight_decay=1e-4"]
        if self.dtype == "bf16":
            command.append("--use_bf16")
        if threads:
            command.append(f"--num_intra_threads={threads}")
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
    wanted: float = 1.35

    @property
    def name(self):
        return f"data-{self.model}"

    @property
    def floor(self):
        return self.wanted

    def own_sides(self):
        return []

    def peers(self):
        return list(INPUT)

    def peer_command(self, python, folder, peer):
        return [python, f"{folder}/{INPUT[peer]}", IMAGENET, str(self.batch), "224", str(self.threads), str(self.steps)], {}

    def our_command(self, program, first_step_only=False, threads=None):
        return [program, "bench", "data", f"--data_dir={IMAGENET}", "--image_size=224", f"--batch_size={self.batch}",
                f"--num_threads={self.threads}", "--nodistortions", f"--seconds={0 if first_step_only else self.steps}", *self.flags]


@dataclasses.dataclass(frozen=True)
class BoxesRow(DataRow):
    """SSD's training input: images with boxes."""

    def peers(self):
        return [PYTORCH]

    def peer_command(self, python, folder, peer):
        return [python, f"{folder}/input_torchvision_boxes.py", COCO, str(self.batch), str(self.threads), str(self.steps)], {}

    def our_command(self, program, first_step_only=False, threads=None):
        return [program, "bench", "data", f"--data_dir={COCO}", "--data_name=coco", f"--batch_size={self.batch}",
                f"--num_threads={self.threads}", f"--seconds={0 if first_step_only else self.steps}", *self.flags]


# The nine that every processor is measured with, and others.
NETWORKS = [
    Row("training", "resnet50", "resnet50_v1.5", 32, 4),
    Row("training", "resnet20", "resnet20", 128, 40),
    Row("training", "vgg16", "torchvision/vgg16", 8, 3),
    Row("training", "inception_v3", "inception_v3", 16, 5),
    Row("training", "densenet121", "densenet121", 16, 6),
    Row("training", "mobilenet_v2", "mobilenet_v2", 32, 10),
    Row("training", "resnet18", "resnet18", 16, 10, without=(TENSORFLOW,)),
    Row("training", "convnext_tiny", "convnext_tiny", 16, 4),
    Row("training", "vit_b_16", "vit_b_16", 16, 3, without=(TENSORFLOW,)),
    Row("zoo", "alexnet", "torchvision/alexnet", 64, 8),
    Row("zoo", "resnext50_32x4d", "resnext50_32x4d", 16, 4, without=(TENSORFLOW,)),
    Row("zoo", "mobilenet_v3_large", "mobilenet_v3_large", 16, 20),
    Row("zoo", "efficientnet_b0", "efficientnet_b0", 16, 15),
    Row("zoo", "regnet_y_400mf", "regnet_y_400mf", 16, 20, without=(TENSORFLOW,)),
    Row("zoo", "ssd300", "ssd300", 8, 3, without=(TENSORFLOW,)),
]
DATA = [
    DataRow("data", "crops", "random crops to 224", 64, 10),
    DataRow("data", "decoded", "the same, decoded images in memory", 64, 10, wanted=4.0, flags=("--decoded_cache_mib=1024", "--warmup_epochs=1")),
    BoxesRow("data", "boxes", "SSD's parts of COCO's images to 300, with boxes", 8, 10, wanted=1.5),
]
ROWS = {row.name: row for row in [*(dataclasses.replace(row, level=level) for row in NETWORKS for level in LEVELS), *DATA]}


def choose(names, levels):
    """The rows of these names, and of these groups at these levels, in the table's order; without names those of training."""
    names = names or ["training"]
    known = {*ROWS, *(row.group for row in ROWS.values())}
    for name in names:
        if name not in known:
            raise SystemExit(f"compare: no row {name}; known: {' '.join(sorted(known))}")
    return [row for row in ROWS.values()
            if row.name in names or (row.group in names and (row.level in levels or row.group == "data"))]
