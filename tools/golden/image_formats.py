"""Small image files in the formats beside JPEG and PNG, and their pixels as Pillow reads them.

usage: image_formats.py FOLDER      (trainyard/data/testdata/formats)

For each file X.webp, X.gif, X.bmp or X.tif: X.npy, uint8 [height, width, 3], of Image.open(file).convert("RGB"), the first
frame, as stored: without TIFF's orientation, which Pillow applies and Trainyard does where --exif_orientation says so.
Files whose name ends in "_turned" have an orientation, and a second array, X_turned.npy, of the turned image.
16-bit TIFFs are no golden files of Pillow's, which clips them: their pixels are the upper bytes.
"""
import io
import re
import struct
import sys
from pathlib import Path

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 18, 25  # odd, so that rows are padded


def smooth(channels: int) -> np.ndarray:
    """A picture with gradients and edges, [HEIGHT, WIDTH, channels]."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [(x * 9 + y * 2) % 256, (y * 13 + (x > 12) * 70) % 256, ((x - 9) ** 2 + (y - 6) ** 2) % 256, (x * y * 3) % 256]
    return np.stack(planes[:channels], axis=-1).astype(np.uint8)


class Writer:
    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, name: str) -> Path:
        """FOLDER/tif/ for plain.tif and for its pixels, plain_tif.npy"""
        folder = self.folder / re.search(r"[._](bmp|gif|tif|webp)", name).group(1)
        folder.mkdir(exist_ok=True)
        return folder / name

    def pixels(self, name: str, array: np.ndarray) -> None:
        np.save(self.path(f"{name}.npy"), np.ascontiguousarray(array, dtype=np.uint8))

    def add(self, file: str, content: bytes, expected: np.ndarray | None = None) -> None:
        self.path(file).write_bytes(content)
        if expected is None:
            with Image.open(io.BytesIO(content)) as image:
                expected = np.asarray(image.convert("RGB"))
        self.pixels(file.replace(".", "_"), expected)

    def save(self, file: str, image: Image.Image, expected: np.ndarray | None = None, **options) -> None:
        buffer = io.BytesIO()
        image.save(buffer, **options)
        self.add(file, buffer.getvalue(), expected)


def webp(writer: Writer) -> None:
    rgb, rgba = Image.fromarray(smooth(3), "RGB"), Image.fromarray(smooth(4), "RGBA")
    writer.save("lossy.webp", rgb, format="WEBP", quality=70)
    writer.save("lossless.webp", rgb, format="WEBP", lossless=True)
    writer.save("lossy_alpha.webp", rgba, format="WEBP", quality=70, exact=True)
    writer.save("lossless_alpha.webp", rgba, format="WEBP", lossless=True, exact=True)
    writer.save("gray.webp", rgb.convert("L"), format="WEBP", quality=90)
    second = Image.fromarray(smooth(4)[::-1].copy(), "RGBA")
    writer.save("animated.webp", rgba, format="WEBP", save_all=True, append_images=[second], lossless=True, exact=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    writer.save("turned.webp", rgb, format="WEBP", lossless=True, exif=exif)
    writer.pixels("turned_webp_turned", np.rot90(smooth(3), -1))


def gif_bytes(screen, frame, indices, palette, transparent=None, interlaced=False, colour_bits=8) -> bytes:
    """A GIF of one frame (left, top, width, height) with a global palette, LZW codes of nine bits that never grow."""
    bits = 8
    out = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80 | 0x70 | (colour_bits - 1), 0, 0)
    out += bytes(palette) + bytes(3 * (1 << colour_bits) - len(palette))
    if transparent is not None:
        out += b"\x21\xf9\x04\x01\x00\x00" + bytes([transparent]) + b"\x00"
    left, top, width, height = frame
    out += b"\x2c" + struct.pack("<HHHHB", left, top, width, height, 0x40 if interlaced else 0)
    rows = list(range(height))
    if interlaced:
        rows = [y for first, step in ((0, 8), (4, 8), (2, 4), (1, 2)) for y in range(first, height, step)]
    codes = [256]
    for place, index in enumerate(int(i) for y in rows for i in indices[y]):
        if place % 200 == 199:
            codes.append(256)  # before codes need a tenth bit
        codes.append(index)
    codes.append(257)
    value, filled, data = 0, 0, bytearray()
    for code in codes:
        value |= code << filled
        filled += 9
        while filled >= 8:
            data.append(value & 255)
            value >>= 8
            filled -= 8
    data.append(value & 255)
    out += bytes([bits])
    for at in range(0, len(data), 255):
        block = data[at:at + 255]
        out += bytes([len(block)]) + block
    return out + b"\x00\x3b"


def gif(writer: Writer) -> None:
    rgb = Image.fromarray(smooth(3), "RGB")
    writer.save("palette.gif", rgb.quantize(64), format="GIF")
    writer.save("gray.gif", rgb.convert("L"), format="GIF")
    frames = [rgb.quantize(32), Image.fromarray(smooth(3)[::-1].copy(), "RGB").quantize(32)]
    writer.save("animated.gif", frames[0], format="GIF", save_all=True, append_images=frames[1:], duration=50)
    palette = [v for i in range(256) for v in (i, 255 - i, (i * 7) % 256)]
    indices = smooth(1)[:, :, 0]
    whole = (0, 0, WIDTH, HEIGHT)
    writer.add("interlaced.gif", gif_bytes((WIDTH, HEIGHT), whole, indices, palette, interlaced=True))
    writer.add("transparent.gif", gif_bytes((WIDTH, HEIGHT), whole, indices, palette, transparent=27))
    part = (3, 2, WIDTH, HEIGHT)
    writer.add("part.gif", gif_bytes((WIDTH + 6, HEIGHT + 7), part, indices, palette))
    writer.add("part_transparent.gif", gif_bytes((WIDTH + 6, HEIGHT + 7), part, indices, palette, transparent=99))
    for name, short in (("short_palette", palette[:12]), ("short_grays", [i for i in range(4) for _ in range(3)])):
        writer.add(f"{name}.gif", gif_bytes((WIDTH, HEIGHT), whole, indices, short, colour_bits=2))
    writer.add("beyond.gif", gif_bytes((WIDTH - 4, HEIGHT - 5), part, indices, palette))


def add_short_palettes(writer: Writer) -> None:
    """Palettes with fewer colours than the indices in use: what the file lacks is black, or gray behind grays."""
    indices = smooth(1)[::-1, :, 0]
    two = bytes([10, 200, 30, 0, 250, 50, 60, 0])
    writer.add("short_palette8.bmp", bmp_bytes([row.tobytes() for row in indices % 5], 8, HEIGHT, two))
    writer.add("short_palette8_far.bmp", bmp_bytes([row.tobytes() for row in indices], 8, HEIGHT, two))
    packed = [bytes(int(a) << 4 | int(b) for a, b in zip(row[::2], list(row[1::2]) + [0])) for row in indices % 16]
    writer.add("short_palette4.bmp", bmp_bytes(packed, 4, HEIGHT, two))
    bits = np.packbits(indices % 2, axis=1)
    writer.add("short_palette1.bmp", bmp_bytes([row.tobytes() for row in bits], 1, HEIGHT, two[:4]))
    grays = b"".join(bytes([i, i, i, 0]) for i in range(40))
    writer.add("short_grays8.bmp", bmp_bytes([row.tobytes() for row in indices], 8, HEIGHT, grays))


def bmp_bytes(rows: list[bytes], bits: int, height: int, palette: bytes = b"", masks: bytes = b"") -> bytes:
    padded = b"".join(row + bytes(-len(row) % 4) for row in rows)
    offset = 14 + 40 + len(palette) + len(masks)
    header = struct.pack("<IiiHHIIiiII", 40, WIDTH, height, 1, bits, 3 if masks else 0, len(padded), 2835, 2835,
                         len(palette) // 4, 0)
    return b"BM" + struct.pack("<IHHI", offset + len(padded), 0, 0, offset) + header + masks + palette + padded


def bmp(writer: Writer) -> None:
    rgb = Image.fromarray(smooth(3), "RGB")
    writer.save("rgb24.bmp", rgb, format="BMP")
    writer.save("palette8.bmp", rgb.quantize(200), format="BMP")
    writer.save("gray8.bmp", rgb.convert("L"), format="BMP")
    writer.save("one_bit.bmp", rgb.convert("1"), format="BMP")
    writer.save("rgba32.bmp", Image.fromarray(smooth(4), "RGBA"), format="BMP")
    bgr = smooth(3)[:, :, ::-1]
    writer.add("top_down.bmp", bmp_bytes([row.tobytes() for row in bgr], 24, -HEIGHT))
    with_blank = np.concatenate([bgr, np.zeros((HEIGHT, WIDTH, 1), np.uint8)], axis=-1)
    writer.add("rgb32.bmp", bmp_bytes([row.tobytes() for row in with_blank[::-1]], 32, HEIGHT))
    four = smooth(1)[:, :, 0] % 16
    packed = [bytes(int(a) << 4 | int(b) for a, b in zip(row[::2], list(row[1::2]) + [0])) for row in four[::-1]]
    palette = b"".join(bytes([i * 5, 255 - i * 9, i * 16, 0]) for i in range(16))
    writer.add("palette4.bmp", bmp_bytes(packed, 4, HEIGHT, palette))
    sixteen = [struct.pack(f"<{WIDTH}H", *((int(r) >> 3) << 11 | (int(g) >> 2) << 5 | int(b) >> 3 for r, g, b in row))
               for row in smooth(3)[::-1]]
    writer.add("rgb565.bmp", bmp_bytes(sixteen, 16, HEIGHT, masks=struct.pack("<III", 0xF800, 0x07E0, 0x001F)))
    add_short_palettes(writer)
    # Run lengths, which are refused: no pixels are kept.
    writer.path("run_lengths.bmp").write_bytes(
        b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + 8) + struct.pack("<IiiHHIIiiII", 40, 2, 1, 1, 8, 1, 4, 0, 0, 2, 0) +
        bytes(8) + bytes([2, 1, 0, 1]))


def tiff(writer: Writer) -> None:
    rgb, rgba = Image.fromarray(smooth(3), "RGB"), Image.fromarray(smooth(4), "RGBA")
    for name, compression in (("plain", None), ("lzw", "tiff_lzw"), ("deflate", "tiff_adobe_deflate"),
                              ("packbits", "packbits"), ("zstd", "zstd")):
        writer.save(f"{name}.tif", rgb, format="TIFF", compression=compression)
    writer.save("jpeg.tif", rgb, format="TIFF", compression="jpeg", quality=90)
    writer.save("gray.tif", rgb.convert("L"), format="TIFF", compression="tiff_lzw")
    writer.save("palette.tif", rgb.quantize(100), format="TIFF")
    writer.save("one_bit.tif", rgb.convert("1"), format="TIFF", compression="group4")
    writer.save("alpha.tif", rgba, format="TIFF", compression="tiff_lzw")
    writer.save("cmyk.tif", rgb.convert("CMYK"), format="TIFF")
    writer.save("strips.tif", rgb, format="TIFF", compression="tiff_lzw", strip_size=3 * WIDTH * 4)
    writer.save("pages.tif", rgb, format="TIFF", save_all=True,
                append_images=[Image.fromarray(smooth(3)[::-1].copy(), "RGB")])
    add_tiled(writer)
    add_wide(writer)
    add_refused_jpeg(writer)
    exif = Image.Exif()
    exif[0x0112] = 8
    writer.save("turned.tif", rgb, smooth(3), format="TIFF", exif=exif)
    writer.pixels("turned_tif_turned", np.rot90(smooth(3)))


def tiff_bytes(tags: list[tuple[int, int, list[int]]], data: bytes, data_tag: int, big_endian: bool = False) -> bytes:
    """One page whose pixels stand behind the header; `data_tag` names their offset."""
    order = ">" if big_endian else "<"
    codes = {3: "H", 4: "I"}
    out = (b"MM" if big_endian else b"II") + struct.pack(order + "HI", 42, 8 + len(data)) + data
    tags = sorted(tags + [(data_tag, 4, [8])])
    extra_at = len(out) + 2 + 12 * len(tags) + 4
    entries, extra = b"", b""
    for name, kind, values in tags:
        packed = struct.pack(f"{order}{len(values)}{codes[kind]}", *values)
        if len(packed) > 4:
            field = struct.pack(order + "I", extra_at + len(extra))
            extra += packed
        else:
            field = packed.ljust(4, b"\0")
        entries += struct.pack(order + "HHI", name, kind, len(values)) + field
    return out + struct.pack(order + "H", len(tags)) + entries + struct.pack(order + "I", 0) + extra


def add_tiled(writer: Writer) -> None:
    side, image = 32, smooth(3)  # one tile that is larger than the image
    tile = np.zeros((side, side, 3), np.uint8)
    tile[:HEIGHT, :WIDTH] = image
    tags = [(256, 3, [WIDTH]), (257, 3, [HEIGHT]), (258, 3, [8, 8, 8]), (259, 3, [1]), (262, 3, [2]), (277, 3, [3]),
            (284, 3, [1]), (322, 3, [side]), (323, 3, [side]), (325, 4, [tile.size])]
    writer.add("tiled.tif", tiff_bytes(tags, tile.tobytes(), 324))


def add_refused_jpeg(writer: Writer) -> None:
    """A JPEG of YCbCr that says to be RGB, of which libtiff complains in two lines: refused, so no pixels are kept."""
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(buffer, format="JPEG", subsampling=2)
    data = buffer.getvalue()
    tags = [(256, 3, [16]), (257, 3, [16]), (258, 3, [8, 8, 8]), (259, 3, [7]), (262, 3, [2]), (277, 3, [3]), (278, 3, [16]),
            (279, 4, [len(data)]), (284, 3, [1])]
    writer.path("refused_jpeg.tif").write_bytes(tiff_bytes(tags, data, 273))


def add_wide(writer: Writer) -> None:
    """16 bits a sample in the big-endian order, and alpha that colours were multiplied by."""
    image = smooth(3).astype(np.uint16) * 256 + 77
    strip = [(256, 3, [WIDTH]), (257, 3, [HEIGHT]), (259, 3, [1]), (278, 3, [HEIGHT]), (284, 3, [1])]
    data = image.astype(">u2").tobytes()
    writer.add("sixteen_bits.tif",
               tiff_bytes(strip + [(258, 3, [16] * 3), (262, 3, [2]), (277, 3, [3]), (279, 4, [len(data)])], data, 273,
                          big_endian=True), image >> 8)
    gray = image[:, :, :1].astype("<u2").tobytes()
    writer.add("gray_sixteen_bits.tif",
               tiff_bytes(strip + [(258, 3, [16]), (262, 3, [1]), (277, 3, [1]), (279, 4, [len(gray)])], gray, 273),
               np.repeat(image[:, :, :1] >> 8, 3, axis=-1))
    alpha = np.maximum(smooth(4)[:, :, 3:], 1).astype(np.uint32)
    multiplied = (smooth(3) * alpha // 255).astype(np.uint8)
    data = np.concatenate([multiplied, alpha.astype(np.uint8)], axis=-1).tobytes()
    writer.add("multiplied_alpha.tif",
               tiff_bytes(strip + [(258, 3, [8] * 4), (262, 3, [2]), (277, 3, [4]), (338, 3, [1]), (279, 4, [len(data)])],
                          data, 273))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder)
    for make in (webp, gif, bmp, tiff):
        make(writer)


if __name__ == "__main__":
    main()
