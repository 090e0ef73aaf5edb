"""Unpacks NVIDIA's wheels into a folder that looks like an installed CUDA toolkit.

usage: unpack_cuda.py [--part] WHEEL_FOLDER OUTPUT_FOLDER

Each wheel is deleted once it is unpacked. --part: single libraries, not a toolkit with its compiler.
"""

import pathlib
import stat
import sys
import zipfile

PREFIX = "nvidia/cu13/"


def main(wheels: pathlib.Path, output: pathlib.Path, part: bool) -> None:
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if not entry.filename.startswith(PREFIX) or entry.is_dir():
                    continue
                target = output / entry.filename.removeprefix(PREFIX)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
                # pip would keep the permissions; zipfile does not.
                if target.parent.name == "bin":
                    target.chmod(target.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        wheel.unlink()
    if part:
        return
    for needed in ("bin/nvcc", "nvvm/bin/cicc", "include/cuda_runtime_api.h", "include/cupti.h", "lib/libcudart.so.13",
                   "lib/libcudadevrt.a"):
        if not (output / needed).exists():
            sys.exit(f"unpack_cuda: {needed} is in none of the wheels")
    (output / "lib64").symlink_to("lib")
    (output / "lib" / "libcudart.so").symlink_to("libcudart.so.13")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[-2]), pathlib.Path(sys.argv[-1]), "--part" in sys.argv[1:-2])
