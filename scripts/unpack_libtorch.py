"""Unpacks from PyTorch's wheels only what a C++ build on CPUs needs.

usage: unpack_libtorch.py WHEEL_FOLDER OUTPUT_FOLDER

The wheel's libgomp is left behind on purpose: the program then has one OpenMP runtime, the system's.
Each wheel is deleted once it is unpacked; together they are larger than what is kept.
"""

import pathlib
import re
import sys
import zipfile

WANTED = re.compile(
    r"torch/include/|torch/version\.py$|torch/lib/(libtorch_cpu|libc10)\.so$|torch-[^/]*/licenses/|"
    r"nvidia/cu13/lib/lib[^/]*\.so"
)


def main(wheels: pathlib.Path, output: pathlib.Path) -> None:
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if WANTED.match(name)]
            archive.extractall(output, names)
        wheel.unlink()
    for needed in ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/include/ATen/ATen.h",
                   "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"):
        if not (output / needed).exists():
            sys.exit(f"unpack_libtorch: {needed} is in none of the wheels")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
