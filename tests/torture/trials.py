"""One function a kind of trial. Each disturbs a run at a random moment, takes it up again, and holds the end against the
oracle of world.py. A trial that finds something wrong, or something good lost, raises Fault.
"""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from world import CLASSES, STEPS, Checkpoint, Fault, check, checkpoints

STOPPED_BY_SIGNAL = 75


def interrupted(world, rng, folder, *more):
    """A run that ends by a signal at a random moment after its first checkpoint. Returns what it left."""
    child = world.start(folder, *more)
    deadline = time.monotonic() + 60
    while not checkpoints(folder) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(rng.uniform(0, 0.5 * world.seconds))
    number = rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    child.send_signal(number)
    said = child.communicate(timeout=60)[0]
    expected = {-number, STOPPED_BY_SIGNAL, 0} if number != signal.SIGKILL else {-number, 0}
    check(child.returncode in expected, f"{number.name} ended the run with {child.returncode}: {said}")
    return checkpoints(folder)


def kill(world, rng, folder):
    """Signals at random moments, also while the program starts or saves."""
    for _ in range(rng.randint(1, 4)):
        before = [checkpoint.step for checkpoint in checkpoints(folder)]
        child = world.start(folder)
        time.sleep(rng.uniform(0, world.seconds))
        child.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        child.communicate(timeout=60)
        after = [checkpoint.step for checkpoint in checkpoints(folder)]
        check(not before or (after and after[-1] >= before[-1]), f"checkpoints {before} became {after}")
    world.finish(folder)


def full_disk(world, rng, folder):
    """No room for a file beyond a random size: whatever was saved before stays, and the failure is said."""
    limit = rng.randrange(1, 1 << 20)

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    if rng.random() < 0.5:
        interrupted(world, rng, folder)
    before = checkpoints(folder)
    bits = {checkpoint.step: checkpoint.tensors() for checkpoint in before}
    done = world.train(folder, preexec_fn=limited)
    after = checkpoints(folder)
    if done.returncode == 0:
        check(after and after[-1].step == STEPS, f"ended well without its last checkpoint: {done.stdout}")
    else:
        check(re.search(r"no space|no_space|too large|File|disk", done.stdout), f"does not say why it ended: {done.stdout}")
        check(not before or (after and after[-1].step >= before[-1].step), "a full disk cost a checkpoint")
    for checkpoint in after:
        check(bits.get(checkpoint.step) in (None, checkpoint.tensors()), f"{checkpoint.path} changed")
    world.finish(folder)


def hurt(rng, path):
    """Damages a file. Returns what was done, in words."""
    data = bytearray(path.read_bytes())
    how = rng.choice(["bit", "bit", "bit", "cut", "gone"] if data else ["gone"])
    if how == "bit":
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        return f"a bit at {at} of {path.name}"
    if how == "cut":
        length = rng.randrange(len(data))
        path.write_bytes(data[:length])
        return f"{path.name} cut to {length} bytes"
    path.unlink()
    return f"{path.name} removed"


def damage(world, rng, folder):
    """A random byte of a random file in the folder: nothing that is damaged is trained on, evaluated or written over."""
    left = interrupted(world, rng, folder)
    if not left:
        return
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    saved = {checkpoint.path for checkpoint in left}  # an unfinished one (.tmp-) is removed without a word
    parts = [path for path in files if path.parent in saved]
    path = rng.choice(parts if rng.random() < 0.7 else files)
    newest = path.parent == left[-1].path
    size = path.stat().st_size
    damaged = hurt(rng, path)
    if newest:
        for verb in ("train", "eval", "predict"):
            picture = sorted(world.images.glob("val/*/*.png"))[0]
            done = (world.run(world.program, "predict", f"--train_dir={folder}", str(picture)) if verb == "predict"
                    else world.run(*world.command(folder, verb=verb)))
            check(done.returncode != 0, f"{damaged}: {verb} ended well: {done.stdout}")
            check("damaged" in done.stdout, f"{damaged}: {verb} does not say damaged: {done.stdout}")
            check(left[-1].path.name in done.stdout, f"{damaged}: {verb} does not name the checkpoint: {done.stdout}")
        check(checkpoints(folder)[-1].step == left[-1].step, f"{damaged}: another checkpoint was written")
        said = world.finish(folder, "--ignore_damaged_checkpoints")
        check("damaged" in said, f"{damaged}: going on does not say what it passes over: {said}")
    elif path in parts:
        # Told at the next look where manifest or lengths show it; a bit of a tensor when this checkpoint is read.
        if path.exists() and path.stat().st_size == size and path.name == "tensors.bin":
            done = world.run(*world.command(None, f"--weights={path.parent}", verb="eval"))
            check(done.returncode != 0 and "damaged" in done.stdout, f"{damaged}: eval of it: {done.stdout}")
            world.finish(folder)
            return
        said = world.finish(folder)
        check("damaged" in said, f"{damaged} in {path.parent.name}: nothing was said: {said}")
    else:
        world_rows = world.check_rows
        try:  # a row of the metrics that was hit is the trial's own doing
            world.check_rows = lambda train_dir: None
            world.finish(folder)
        finally:
            world.check_rows = world_rows


def second_run(world, rng, folder):
    """A second run in the folder of one that runs is refused, and harms nothing."""
    first = world.start(folder)
    deadline = time.monotonic() + 60
    while not (folder / "metrics.jsonl").exists() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(rng.uniform(0, 0.3 * world.seconds))
    os.kill(first.pid, signal.SIGSTOP)  # it must not end before the second one has looked
    try:
        ended = first.poll() is not None
        if not ended and checkpoints(folder) and checkpoints(folder)[-1].step < STEPS:
            second = world.train(folder)
            check(second.returncode != 0, f"a second run ended well: {second.stdout}")
            check(str(first.pid) in second.stdout, f"the second run does not say who holds the folder: {second.stdout}")
            shown, said = world.evaluate(folder)
            check(shown is not None, f"a reader was refused: {said}")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    if rng.random() < 0.3:
        first.kill()
        first.communicate(timeout=60)
        world.finish(folder)  # a dead owner's lock is taken over
        return
    said = first.communicate(timeout=60)[0]
    check(first.returncode == 0, f"the first run ended with {first.returncode}: {said}")
    world.check_end(folder)


def other_classes(world, rng, folder):
    """A class folder is renamed, removed or added between a run and the next look at it."""
    data = world.copy_images(folder.with_name(folder.name + "-images"))
    name = rng.choice(sorted(CLASSES))
    new = rng.choice(["aaa", "mmm", "zzz", name + "s"])
    left = interrupted(world, rng, folder)
    step = left[-1].step if left else None
    if rng.random() < 0.4:
        # In training: the same weights would mean other classes.
        how = rng.choice(["renamed", "removed", "added"])
        train = data / "train"
        if how == "renamed":
            (train / name).rename(train / new)
        elif how == "removed":
            shutil.rmtree(train / name)
        else:
            shutil.copytree(train / name, train / new)
        if step is not None and step < STEPS:
            done = world.run(*world.command(folder, data=data))
            check(done.returncode != 0, f"{name} {how} ({new}): training went on: {done.stdout}")
            check((name if how != "added" else new) in done.stdout, f"{name} {how} ({new}): not named: {done.stdout}")
            check(checkpoints(folder)[-1].step == step, "a checkpoint was written")
        world.finish(folder)
        return
    world.finish(folder)
    val = data / "val"
    how = rng.choice(["removed", "renamed", "added"])
    if how == "removed":
        shutil.rmtree(val / name)
        expected = world.expected(val)
        shown, said = world.evaluate(folder, data=data)
        check(shown is not None and abs(shown - expected) < 1e-4, f"{name} removed: {shown}, not {expected}: {said}")
        return
    if how == "renamed":
        (val / name).rename(val / new)
    else:
        shutil.copytree(val / name, val / new)
    shown, said = world.evaluate(folder, data=data)
    check(shown is None and new in said, f"{name} {how} ({new}): accuracy {shown}: {said}")
    shown, said = world.evaluate(folder, "--on_unknown_class=skip", data=data)
    expected = world.expected(val, without=(new,))
    check(shown is not None and abs(shown - expected) < 1e-4, f"{name} {how} ({new}), skipped: {shown}, not {expected}: {said}")


def diverging(world, rng, folder):
    """Weights that become NaN end the run, and the checkpoints from before stay; a checkpoint with NaN is for nothing."""
    left = interrupted(world, rng, folder)
    if not left or left[-1].step >= STEPS - 2:
        return
    if rng.random() < 0.5:
        tensor = left[-1].put_nan(rng)
        picture = sorted(world.images.glob("val/*/*.png"))[0]
        for arguments in (world.command(folder), world.command(folder, verb="eval"),
                          [world.program, "predict", f"--train_dir={folder}", str(picture)]):
            done = world.run(*arguments)
            check(done.returncode != 0, f"NaN in {tensor}: {arguments[1]} ended well: {done.stdout}")
            check(tensor.removeprefix("model/") in done.stdout, f"{arguments[1]} does not name {tensor}: {done.stdout}")
        return
    good = {checkpoint.step: checkpoint.tensors() for checkpoint in left}
    done = world.run(*world.command(folder, rate=1e30))
    check(done.returncode == 1, f"a run that diverged ended with {done.returncode}: {done.stdout}")
    check(re.search(r"step \d+", done.stdout), f"the step is not named: {done.stdout}")
    after = checkpoints(folder)
    for checkpoint in after:
        for entry, values in checkpoint.floats():
            check(all(value - value == 0 for value in values), f"{checkpoint.path}: {entry['name']} is not finite")
    check(any(good.get(checkpoint.step) == checkpoint.tensors() for checkpoint in after), "no checkpoint from before is left")


def closed_streams(world, rng, folder):
    """Standard streams that are closed: no line of a log lands in a file of the run, whichever is opened first."""
    closed = rng.sample([0, 1, 2], rng.randint(1, 3))
    run = subprocess.Popen(["/bin/sh", "-c", 'exec "$@" ' + " ".join(f"{number}>&-" for number in closed), "sh",
                            *world.command(folder, "--log_level=debug")], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    spoiled = set()
    while run.poll() is None:  # also files that are gone at the end
        for path in folder.glob("*"):
            try:
                if path.is_file() and re.search(rb" (debug|info|warning) .*: |^Step\t|images/sec: ", path.read_bytes()):
                    spoiled.add(path.name)
            except OSError:
                pass  # renamed or removed meanwhile
        time.sleep(0.02)
    check(not spoiled, f"with {closed} closed, lines of the log are in {sorted(spoiled)}")
    left = checkpoints(folder)
    check(left and left[-1].step == STEPS, f"with {closed} closed the run ended at {left[-1].step if left else 'no step'}")
    check(left[-1].tensors() == world.bits, f"with {closed} closed the run ended in other bits")
    world.check_rows(folder)


KINDS = {function.__name__: function for function in (
    kill, full_disk, damage, second_run, other_classes, diverging, closed_streams)}
