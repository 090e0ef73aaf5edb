"""Reads recipes/*.yaml, and makes the few images that the tests of recipes train on."""
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPES = ROOT / "recipes"


def read(path):
    """{flag: value} of a recipe: files of one `flag: value` a line."""
    flags = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, separator, value = line.partition(": ")
        assert separator and name.isidentifier() and value.strip() == value, f"{path.name}:{number}: {line}"
        assert name not in flags, f"{path.name}:{number}: {name} is there twice"
        flags[name] = value.strip('"')
    return flags


def header(path):
    """The comment that a recipe begins with."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line[1:].strip())
    return " ".join(lines)


def make_images(program, folder, train, size):
    """A folder of class folders of drawn shapes: `train` images in train/, the same ones in val/."""
    for arguments in (["data", "make-shapes", f"--output={folder / 'records'}", f"--train_count={train}", "--validation_count=12",
                       f"--image_size={size}"],
                      ["data", "convert", f"--from={folder / 'records'}", "--to=folder", f"--output={folder / 'images'}"]):
        made = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300)
        assert made.returncode == 0, made.stderr
    shutil.rmtree(folder / "images" / "val")
    shutil.copytree(folder / "images" / "train", folder / "images" / "val")
    return folder / "images"
