"""What the tests share that let TensorBoard read what a test program of ours wrote."""
import contextlib
import os
import subprocess
import sys
import tempfile


@contextlib.contextmanager
def written_by(test):
    """A folder, until the end of the block, with what `test` of the program in the first argument writes for TensorBoard."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], f"--gtest_filter={test}"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "TRAINYARD_TENSORBOARD_DIR": folder})
        yield folder


def check(actual, expected, what):
    if actual != expected:
        sys.exit(f"{what}: expected {expected}, got {actual}")
