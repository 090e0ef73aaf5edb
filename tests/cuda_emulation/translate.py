"""Makes C++ of a CUDA source for tests/cuda_emulation: launches become calls, dynamic shared memory a pointer.

usage: translate.py SOURCE OUTPUT

Also of the executor, which then takes tensors of the CPU and is called "cuda_emulation".
"""

import pathlib
import re
import sys


def closing(text: str, opening: int) -> int:
    """Where the parenthesis at `opening` is closed."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError("parentheses do not match")


def translate(text: str) -> str:
    while (shape := text.find("<<<")) >= 0:
        # The kernel's name with its template arguments stands between the statement before and the shape.
        kernel = max(text.rfind(mark, 0, shape) for mark in (";", "{", "}"))
        shape_end = text.index(">>>", shape)
        arguments = shape_end + len(">>>")
        end = closing(text, arguments)
        call = text[kernel + 1 : shape].strip() + text[arguments : end + 1]
        launch = f"\n  cuda_emulation::launch({{{text[shape + 3 : shape_end]}}}, [&] {{ {call}; }})"
        text = text[: kernel + 1] + launch + text[end + 1 :]
    text = re.sub(r"extern __shared__ (\w+) (\w+)\[\];[^\n]*",
                  r"\1* const \2 = static_cast<\1*>(cuda_emulation::dynamic_shared());", text)
    text = text.replace("context.device.is_cuda()", "context.device.is_cpu()")
    return text.replace('executors(), "cuda"', 'executors(), "cuda_emulation"')


def main(source: pathlib.Path, output: pathlib.Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(f'#line 1 "{source}"\n' + translate(source.read_text()))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
