"""What the torture runs act on: a data set of plain colours, a run of the program, and what must be true of its folder.

The oracle is a run that nothing disturbed: a disturbed one that was taken up again must end in the same bits, and its
accuracy must be the one that counting the program's own predictions by folder name gives.
"""
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "processes"))
from series import Fault  # noqa: E402

CLASSES = {"amber": (230, 150, 20), "blue": (20, 40, 220), "green": (20, 170, 40), "pink": (240, 120, 190),
           "red": (210, 20, 20), "white": (240, 240, 240)}
STEPS = 60
SAVE_EVERY = 4
KEPT = 3
SIZE = 32  # pixels


def check(holds, message):
    if not holds:
        raise Fault(message)


def write_png(path, colour, rng):
    """A square of one colour with noise, so that no two files are the same."""
    rows = b""
    for _ in range(SIZE):
        rows += b"\0" + bytes(min(255, max(0, part + rng.randint(-15, 15))) for _ in range(SIZE) for part in colour)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks))


def make_images(root, seed=7):
    rng = random.Random(seed)
    for subset, count in (("train", 12), ("val", 4)):
        for name, colour in CLASSES.items():
            folder = root / subset / name
            folder.mkdir(parents=True)
            for i in range(count):
                write_png(folder / f"{i:02d}.png", colour, rng)


def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            value = i
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
            table.append(value)
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


class Checkpoint:
    """A directory model.ckpt-<step>, read by its format's page and not by the program."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.step = int(self.path.name.rsplit("-", 1)[1])

    def tensors(self):
        return (self.path / "tensors.bin").read_bytes()

    def manifest(self):
        return json.loads((self.path / "manifest.json").read_text())

    def floats(self):
        """Name and values of every float32 tensor."""
        data = self.tensors()
        for entry in self.manifest()["tensors"]:
            if entry["dtype"] == "float32":
                yield entry, struct.unpack_from(f"<{entry['bytes'] // 4}f", data, entry["offset"])

    def put_nan(self, rng):
        """Makes one value of one of the model's weights NaN, with checksums that agree. Returns the tensor's name."""
        entry = rng.choice([entry for entry, _ in self.floats() if entry["name"].startswith("model/")])
        data = bytearray(self.tensors())
        at = entry["offset"] + 4 * rng.randrange(entry["bytes"] // 4)
        data[at:at + 4] = struct.pack("<f", float("nan"))
        (self.path / "tensors.bin").write_bytes(data)
        checksum = crc32c(data[entry["offset"]:entry["offset"] + entry["bytes"]])
        text = (self.path / "manifest.json").read_text()
        name = json.dumps(entry["name"])
        text, found = re.subn(rf'("name":{re.escape(name)},.*?"crc32c":)\d+', rf"\g<1>{checksum}", text)
        assert found == 1
        head = text[:text.rindex('"crc32c": "0x')]
        (self.path / "manifest.json").write_text(f'{head}"crc32c": "0x{crc32c(head.encode()):08x}"\n}}\n')
        return entry["name"]


class World:
    """The program, the images, and folders of runs below `root`."""

    def __init__(self, program, root):
        self.program = str(program)
        self.root = pathlib.Path(root)
        self.images = self.root / "images"
        make_images(self.images)

    def command(self, train_dir, *more, verb="train", data=None, rate=0.02):
        place = [f"--train_dir={train_dir}"] if train_dir else []
        flags = [f"--init_learning_rate={rate}", "--nodistortions", "--deterministic", "--num_intra_threads=1",
                 f"--num_batches={STEPS}", "--batch_size=8", f"--save_model_steps={SAVE_EVERY}",
                 f"--max_ckpts_to_keep={KEPT}", "--display_every=2"]
        if verb == "train":
            flags.append("--eval_during_training_every_n_steps=20")
        return [self.program, verb, "--model=lenet", f"--data_dir={data or self.images}", *place, "--device=cpu", *flags, *more]

    def start(self, train_dir, *more, **how):
        return subprocess.Popen(self.command(train_dir, *more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace", **how)

    def run(self, *arguments, timeout=120, **how):
        return subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=timeout, **how)

    def train(self, train_dir, *more, **how):
        return self.run(*self.command(train_dir, *more), **how)

    def evaluate(self, train_dir, *more, data=None):
        """The accuracy that `eval` prints, or None where it ended with an error; and all that it said."""
        done = self.run(*self.command(train_dir, *more, verb="eval", data=data))
        found = re.search(r"Accuracy @ 1 = ([0-9.]+)", done.stdout)
        check((done.returncode == 0) == (found is not None), f"eval ended with {done.returncode}: {done.stdout}")
        return (float(found.group(1)) if found else None), done.stdout

    def prepare(self):
        """The run that nothing disturbs."""
        self.undisturbed = self.root / "undisturbed"
        done = self.train(self.undisturbed)
        assert done.returncode == 0, done.stdout
        self.seconds = min(self.time_of_a_run(i) for i in range(2))
        self.last = checkpoints(self.undisturbed)[-1]
        assert self.last.step == STEPS, self.last.step
        self.bits = self.last.tensors()
        self.predicted = self.predictions()
        self.accuracy = self.expected(self.images / "val")
        shown, said = self.evaluate(self.undisturbed)
        assert shown is not None and abs(shown - self.accuracy) < 1e-4, f"{self.accuracy} by predictions: {said}"
        assert self.accuracy > 0.9, self.accuracy  # else a mistake of labels could pass for bad luck

    def time_of_a_run(self, number):
        folder = self.root / f"timed-{number}"
        start = time.monotonic()
        assert self.train(folder).returncode == 0
        seconds = time.monotonic() - start
        shutil.rmtree(folder)
        return seconds

    def predictions(self):
        files = sorted((self.images / "val").glob("*/*.png"))
        done = subprocess.run([self.program, "predict", f"--weights={self.last.path}", "--json", "--top=1", *files],
                              capture_output=True, text=True, timeout=120, check=True)
        return {line["image"]: line["top"][0]["name"] for line in map(json.loads, done.stdout.splitlines())}

    def expected(self, folder, without=()):
        """Accuracy by counting: what was predicted for the file of this class and number, against its folder's name."""
        right = total = 0
        for path in folder.glob("*/*.png"):
            if path.parent.name in without:
                continue
            total += 1
            right += self.predicted[str(self.images / "val" / path.parent.name / path.name)] == path.parent.name
        return right / total

    def finish(self, train_dir, *more):
        """Takes the run up, ends it undisturbed, and holds what it left against the oracle."""
        done = self.train(train_dir, *more)
        check(done.returncode == 0, f"taking the run up ended with {done.returncode}: {done.stdout}")
        self.check_end(train_dir)
        return done.stdout

    def check_end(self, train_dir):
        last = checkpoints(train_dir)[-1]
        check(last.step == STEPS, f"the run ended at step {last.step}")
        check(last.tensors() == self.bits, "the run ended in other bits than an undisturbed one")
        shown, said = self.evaluate(train_dir)
        check(shown is not None and abs(shown - self.accuracy) < 1e-4, f"accuracy {shown}, not {self.accuracy}: {said}")
        self.check_rows(train_dir)

    def check_rows(self, train_dir):
        """Every row of the metrics is a row, and steps rise within each phase."""
        steps = {}
        for number, line in enumerate((train_dir / "metrics.jsonl").read_text(errors="replace").splitlines(), 1):
            try:
                row = json.loads(line)
            except ValueError:
                raise Fault(f"metrics.jsonl:{number} is no row: {line!r}") from None
            check(row["global_step"] > steps.get(row["phase"], -1),
                  f"metrics.jsonl:{number}: step {row['global_step']} after {steps.get(row['phase'])}")
            steps[row["phase"]] = row["global_step"]

    def copy_images(self, where):
        shutil.copytree(self.images, where)
        return where


def checkpoints(train_dir):
    """Those under their final names, by step."""
    found = [Checkpoint(path) for path in pathlib.Path(train_dir).glob("model.ckpt-*") if re.fullmatch(
        r"model\.ckpt-\d+", path.name)]
    return sorted(found, key=lambda checkpoint: checkpoint.step)
