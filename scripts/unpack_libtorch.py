"""Unpacks from PyTorch's wheels only what a C++ build needs: on CPUs, or with --cuda also what the CUDA engine links.

usage: unpack_libtorch.py WHEEL_FOLDER OUTPUT_FOLDER [--cuda | --licences]

--licences: only the licences of what the wheels hold.

The wheel's libgomp is left behind on purpose: the program then has one OpenMP runtime, the system's.
Each wheel is deleted once it is unpacked; together they are larger than what is kept.
"""

import pathlib
import re
import sys
import zipfile

LICENCES = r"(torch|nvidia_cuda_[a-z]+)-[^/]*/licenses/"
OF_CPUS, OF_CUDA = ("libtorch_cpu", "libc10"), ("libtorch_cuda", "libc10_cuda")


def main(wheels: pathlib.Path, output: pathlib.Path, libraries: tuple[str, ...]) -> None:
    wanted = re.compile(LICENCES + r"|torch/include/|torch/version\.py$|torch/lib/(" + "|".join(libraries) + r")\.so$|nvidia/cu13/lib/lib[^/]*\.so"
                        if libraries else LICENCES)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if wanted.match(name)]
            archive.extractall(output, names)
        wheel.unlink()
    if not libraries:
        return
    for needed in (*(f"torch/lib/{library}.so" for library in libraries), "torch/include/ATen/ATen.h",
                   "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"):
        if not (output / needed).exists():
            sys.exit(f"unpack_libtorch: {needed} is in none of the wheels")


if __name__ == "__main__":
    of_choice = {"--cuda": OF_CPUS + OF_CUDA, "--licences": ()}
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), of_choice[sys.argv[3]] if len(sys.argv) > 3 else OF_CPUS)
