"""Golden values of core::RandomStream, computed with Python integers from the definitions in the papers.

Philox 4x32-10: Salmon et al., SC 2011. SplitMix64 finaliser: Steele et al., OOPSLA 2014. FNV-1a: draft-eastlake-fnv.
Prints the arrays that trainyard/core/random/random_test.cpp holds.
"""

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & M32, (p0 >> 32) ^ c3 ^ k1, p0 & M32
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return [c0, c1, c2, c3]


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & M64
    return value


def mix(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & M64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & M64
    return value ^ (value >> 31)


def stream(seed, name, ids, count):
    key = mix(mix((seed + GOLDEN) & M64) ^ fnv1a(name))
    identity = mix((fnv1a(name) + GOLDEN) & M64)
    for i in ids:
        identity = mix(((identity ^ mix((i + GOLDEN) & M64)) + GOLDEN) & M64)
    numbers = []
    block = 0
    while len(numbers) < count:
        counter = [block & M32, block >> 32, identity & M32, identity >> 32]
        numbers += philox(counter, [key & M32, key >> 32])
        block += 1
    return numbers[:count]


for arguments in [(0, "", []), (1234, "augment", [3, 50000]), (M64, "dropout", [M64])]:
    print(arguments, ", ".join(f"0x{n:08x}" for n in stream(*arguments, 6)))
