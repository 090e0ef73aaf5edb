#!/usr/bin/env python3
"""A CMYK JPEG with and without Adobe's marker, and its pixels as TensorFlow reads them: cmyk_jpeg.py trainyard/data/testdata

Writes cmyk_adobe.jpg, cmyk_plain.jpg (the same without the marker) and for each NAME.npy, uint8 [height, width, 3], of
tf.io.decode_jpeg with the accurate DCT. Says how far Pillow is from them: it takes every CMYK JPEG for Adobe's, whose inks
are stored inverted. Needs Pillow and TensorFlow.
"""
import io
import os
import sys

import numpy as np
import tensorflow as tf
from PIL import Image

HEIGHT, WIDTH = 18, 25


def without_adobe(file: bytes) -> bytes:
    """The file without its segment APP14."""
    at = file.index(b"\xff\xee")
    assert file[at + 4:at + 9] == b"Adobe"
    return file[:at] + file[at + 2 + int.from_bytes(file[at + 2:at + 4], "big"):]


def main() -> None:
    folder = sys.argv[1]
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    inks = np.stack([(x * 9 + y * 2) % 256, y * 13 % 256, (x + y) * 5 % 256, x * 6 % 256], axis=-1).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(inks, "CMYK").save(buffer, format="JPEG", quality=95)
    adobe = buffer.getvalue()
    for name, file in (("cmyk_adobe", adobe), ("cmyk_plain", without_adobe(adobe))):
        with open(os.path.join(folder, name + ".jpg"), "wb") as out:
            out.write(file)
        pixels = tf.io.decode_jpeg(file, channels=3, dct_method="INTEGER_ACCURATE").numpy()
        np.save(os.path.join(folder, name + ".npy"), pixels)
        pillow = np.asarray(Image.open(io.BytesIO(file)).convert("RGB")).astype(int)
        print(f"{name}: Pillow differs by {np.abs(pillow - pixels).max()} levels at most")


if __name__ == "__main__":
    main()
