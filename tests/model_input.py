"""How an image becomes a model's input, by what the model's file says of itself (docs/formats/model_metadata.md) and
nothing else: numpy and Pillow only. A program that runs an exported model elsewhere may take it as it is.

    metadata = {entry.key: entry.value for entry in onnx.load("model.onnx").metadata_props}
    batch = model_input(json.loads(metadata["trainyard.input"]), "photo.jpg")[None]
"""
import math

import numpy
from PIL import Image, ImageOps

F = numpy.float32


def decode(rule, image):
    """uint8 [height, width, 3]."""
    with Image.open(image) as opened:
        if rule.get("scaled_decode") and rule["eval_rule"] not in ("centre", "stretched"):
            draft(opened, rule)
        if rule.get("exif_orientation"):
            return numpy.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
        return numpy.asarray(opened.convert("RGB"))


def draft(opened, rule):
    """Lets libjpeg decode at a half, a quarter or an eighth, as long as both sides stay as long as the model's."""
    height, width = rule["height"], rule["width"]
    if rule.get("eval_central_part"):
        height, width = (math.ceil(side / rule["eval_central_part"]) for side in (height, width))
    if rule.get("exif_orientation") and opened.getexif().get(0x0112, 1) >= 5:  # it lies on its side
        height, width = width, height
    opened.draft("RGB", (width, height))


def keys(distance, a):
    x = numpy.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return numpy.where(x <= 1, near, numpy.where(x < 2, far, 0))


def axis(rule, size, scaled, begin, count, step=None):
    """The matrix [count, size] that makes outputs [begin, begin + count) of `scaled` from `size` pixels."""
    method, convention = rule["resize_method"], rule.get("resize_convention", "plain")
    half = F(0.5) if rule["resize_half_pixel_centers"] else F(0)
    origin = F(0)
    scale = F(size) / F(scaled)
    if step is not None:  # about the image's centre
        scale, origin = F(step), F(0.5) * (F(size) - F(scaled) * F(step))
    matrix = numpy.zeros((count, size))
    repeats = convention in ("dali", "opencv")
    for row, i in enumerate(range(begin, begin + count)):
        place = (F(i) + half) * scale + origin
        center = float(place - half)
        if rule["resize_antialias"] and method in ("bilinear", "bicubic"):
            wide = max(float(scale), 1.0)
            support = wide * (2 if method == "bicubic" else 1)
            taps = numpy.arange(math.ceil(center - support), math.floor(center + support) + 1)
            if not repeats:
                taps = taps[(taps >= 0) & (taps < size)]
            distance = (taps - center) / wide
            weights = keys(distance, -0.5) if method == "bicubic" else numpy.maximum(1 - numpy.abs(distance), 0)
            weights = weights / weights.sum()
        elif method == "nearest":
            taps, weights = numpy.array([min(int(place), size - 1)]), numpy.ones(1)
        elif method == "bilinear":
            part = center - math.floor(center)
            taps, weights = math.floor(center) + numpy.arange(2), numpy.array([1 - part, part])
        elif method == "bicubic":
            part = round((center - math.floor(center)) * 1024) / 1024
            taps = math.floor(center) - 1 + numpy.arange(4)
            weights = keys(part - numpy.arange(-1, 3), -0.5 if half and not repeats else -0.75)
            if half and not repeats:
                weights = weights * ((taps >= 0) & (taps < size))
                weights = weights / weights.sum()
        else:  # area
            start, end = float(F(i) * scale), float(F(i + 1) * scale)
            taps = numpy.arange(math.floor(start), math.ceil(end))
            weights = (numpy.minimum(taps + 1, end) - numpy.maximum(taps, start)) / float(scale)
        numpy.add.at(matrix[row], numpy.clip(taps, 0, size - 1), weights)
    return matrix


def half_away(value):
    return int(math.floor(value + 0.5))


def scaled_size(rule, height, width):
    """(height, width), and the steps of both axes where they are not size / scaled size."""
    convention, shorter, steps = rule.get("resize_convention", "plain"), rule["eval_resize_size"], (None, None)
    if shorter == 0:
        ratio = max(F(rule["height"]) / F(height), F(rule["width"]) / F(width))
        size = [int(F(side) * ratio * F(1.145)) for side in (height, width)]
    elif convention == "tensorflow":
        ratio = F(shorter) / F(min(height, width))
        size = [int(F(side) * ratio) for side in (height, width)]
    elif convention == "opencv":
        ratio = shorter / min(height, width)
        size = [shorter if side == min(height, width) else int(ratio * side + 0.5) for side in (height, width)]
    elif convention == "dali":
        ratio = max(F(shorter) / F(height), F(shorter) / F(width))
        exact = [F(shorter) if F(shorter) / F(side) == ratio else F(float(side) * float(ratio))
                 for side in (height, width)]
        size = [half_away(float(side)) for side in exact]
        steps = (height / float(exact[0]), width / float(exact[1]))
    else:
        size = [side * shorter // min(height, width) for side in (height, width)]
    return max(size[0], rule["height"]), max(size[1], rule["width"]), steps


def start(rule, margin):
    """Where the centre begins, of so many pixels that are cut off."""
    convention = rule.get("resize_convention", "plain")
    if convention == "torchvision":
        return round(margin / 2)  # of two integers the even one
    return (margin + 1) // 2 if convention == "dali" else margin // 2


def centre(pixels, rule):
    """The centre as it is; zeros around it where the image is smaller."""
    height, width = rule["height"], rule["width"]
    top, left = ((side - wanted) // 2 if side >= wanted else -((wanted - side) // 2)
                 for side, wanted in zip(pixels.shape[:2], (height, width)))
    result = numpy.zeros((height, width, 3))
    inside = pixels[max(top, 0):top + height, max(left, 0):left + width]
    y, x = max(-top, 0), max(-left, 0)
    result[y:y + inside.shape[0], x:x + inside.shape[1]] = inside
    return result


def resized(pixels, rule, size, window, steps=(None, None)):
    (top, left), (height, width) = window, (rule["height"], rule["width"])
    rows = axis(rule, pixels.shape[0], size[0], top, height, steps[0])
    columns = axis(rule, pixels.shape[1], size[1], left, width, steps[1])
    mixed = numpy.tensordot(rows, pixels.astype(numpy.float64), 1)
    return numpy.einsum("xw,ywc->yxc", columns, mixed, optimize=True)


def pixels_of(rule, pixels):
    """float [height, width, 3] in [0, 255]: what is normalized."""
    height, width = pixels.shape[:2]
    wanted = rule["height"], rule["width"]
    kind = rule["eval_rule"]
    if kind == "centre":
        return centre(pixels, rule)
    if kind == "stretched":
        result = pixels if (height, width) == wanted else resized(pixels, rule, wanted, (0, 0))
        return numpy.floor(numpy.clip(result, 0, 255) + 0.5)  # whole numbers
    if kind == "whole":
        return resized(pixels, rule, wanted, (0, 0))
    if kind == "central_part":
        parts = round(rule["eval_central_part"] * 1e6)
        y, x = (side * (1000000 - parts) // 2000000 for side in (height, width))
        return resized(pixels[y:height - y, x:width - x], rule, wanted, (0, 0))
    *size, steps = scaled_size(rule, height, width)
    window = [start(rule, side - side_wanted) for side, side_wanted in zip(size, wanted)]
    result = resized(pixels, rule, size, window, steps)
    return numpy.clip(result, 0, 255) if rule.get("resize_convention") in ("opencv", "torchvision") else result


def model_input(rule, image):
    """float32 [3, height, width] of an image: a path, a file, or pixels as uint8 [height, width, 3]."""
    pixels = image if isinstance(image, numpy.ndarray) else decode(rule, image)
    result = pixels_of(rule, pixels) * numpy.array(rule["scale"]) + numpy.array(rule["shift"])
    return numpy.ascontiguousarray(result.transpose(2, 0, 1), dtype=numpy.float32)
