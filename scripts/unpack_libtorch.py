"""Unpacks from PyTorch's wheels only what a C++ build needs: on CPUs, or with --cuda also what the CUDA engine links.

usage: unpack_libtorch.py WHEEL_FOLDER OUTPUT_FOLDER [--cuda]

The wheel's libgomp is left behind on purpose: the program then has one OpenMP runtime, the system's.
Each wheel is deleted once it is unpacked; together they are larger than what is kept.
"""

import pathlib
import re
import sys
import zipfile

OF_CPUS, OF_CUDA = ("libtorch_cpu", "libc10"), ("libtorch_cuda", "libc10_cuda")


def main(wheels: pathlib.Path, output: pathlib.Path, libraries: tuple[str, ...]) -> None:
    wanted = re.compile(r"torch/include/|torch/version\.py$|torch/lib/(" + "|".join(libraries) + r")\.so$|torch-[^/]*/licenses/|"
                        r"nvidia/cu13/lib/lib[^/]*\.so")
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if wanted.match(name)]
            archive.extractall(output, names)
        wheel.unlink()
    for needed in (*(f"torch/lib/{library}.so" for library in libraries), "torch/include/ATen/ATen.h",
                   "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"):
        if not (output / needed).exists():
            sys.exit(f"unpack_libtorch: {needed} is in none of the wheels")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), OF_CPUS + OF_CUDA if "--cuda" in sys.argv[3:] else OF_CPUS)
