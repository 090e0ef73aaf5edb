"""Divides names as docs/formats/class_folders.md says, from its words alone: the values in dataset_division_test.cpp.

usage: division.py
"""


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def by_hash(names):
    return sorted(names, key=lambda name: (fnv1a(name), name))


def split(names, part):
    """The names that are for validation."""
    if len(names) < 2:
        return []
    count = min(max(1, int(len(names) * part + 0.5)), len(names) - 1)
    return sorted(by_hash(names)[:count])


def fold(class_name, names, folds, number):
    first = fnv1a(class_name) % folds
    return sorted(
        name
        for place, name in enumerate(by_hash(names))
        if (place * folds // len(names) + first) % folds == number
    )


if __name__ == "__main__":
    names = [f"{i:04}.jpg" for i in range(12)]
    print("split 0.25:", split(names, 0.25))
    print("split 0.5 of 3:", split(names[:3], 0.5))
    print("split 0.9 of 2:", split(names[:2], 0.9))
    for number in range(5):
        print(f"fold {number} of 5, cat:", fold("cat", names, 5, number))
    print("only image of dog:", [number for number in range(5) if fold("dog", names[:1], 5, number)])
