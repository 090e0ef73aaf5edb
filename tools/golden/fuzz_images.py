#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets jpeg and png: fuzz_images.py trainyard/data/testdata/fuzz

Small images of every kind that the decoders tell apart. Needs Pillow.
"""
import os
import sys

from PIL import Image

folder = sys.argv[1]
image = Image.frombytes("RGB", (19, 13), bytes((7 * i + i // 57) % 256 for i in range(3 * 19 * 13)))


def save(kind, name, picture, **options):
    picture.save(os.path.join(folder, kind, name), {"jpeg": "JPEG", "png": "PNG"}[kind], **options)


exif = Image.Exif()
exif[0x0112] = 6  # orientation: turned right
for name, options in {"420": {"subsampling": 2}, "422": {"subsampling": 1}, "444": {"subsampling": 0},
                      "progressive": {"progressive": True}, "restarts": {"restart_marker_blocks": 1},
                      "orientation": {"exif": exif}, "optimized": {"optimize": True, "quality": 20}}.items():
    save("jpeg", name, image, **{"quality": 60, **options})
save("jpeg", "gray", image.convert("L"), quality=60)
save("jpeg", "cmyk", image.convert("CMYK"), quality=60)

save("png", "rgb", image)
save("png", "gray", image.convert("L"))
save("png", "palette", image.quantize(7))
save("png", "palette_alpha", image.quantize(7), transparency=2)
save("png", "rgba", image.convert("RGBA"))
save("png", "gray_alpha", image.convert("LA"))
save("png", "one_bit", image.convert("1"))
save("png", "gray16", Image.frombytes("I;16", (5, 4), bytes(range(40))))
