#!/usr/bin/env python3
"""Runs the steps of deploy/Dockerfile where no builder of images is: in a bare Debian that debootstrap makes, with the package of
this build as the context. Then uses the program in it as a container does: with a file system that is only read, as a user whom
the system does not know. Does not check what a registry's image may hold beyond debian:12-slim's packages and dpkg settings.

usage: tests/package/dockerfile_test.py BUILD_FOLDER [DOCKERFILE]

The bare system is kept in BUILD_FOLDER/bare_debian.tar, or in the file that TRAINYARD_BARE_DEBIAN names. Skipped by name without
root, without debootstrap, without the right to make namespaces, and where Debian's packages cannot be reached.
"""
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77  # what CTest counts as skipped
INSIDE = "TRAINYARD_TEST_INSIDE"
SOURCE = pathlib.Path(__file__).resolve().parents[2]
USER = 12345  # has no entry in the image's /etc/passwd
# What debian:12-slim tells dpkg: the files of these folders are left out of packages.
SLIM = "".join(f"path-exclude /usr/share/{folder}/*\n" for folder in ("doc", "groff", "info", "linda", "lintian", "locale", "man"))
SLIM += "path-include /usr/share/doc/*/copyright\n"


def skip(reason):
    print(reason)
    sys.exit(SKIPPED)


def fail(reason):
    print(f"dockerfile_test: {reason}", file=sys.stderr)
    sys.exit(1)


def instructions(text):
    """The instructions of a Dockerfile as (name, argument), lines that are continued joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.strip().split(None, 1)) for line in joined.splitlines() if line.strip()]


def enter_namespaces():
    """Runs this script again with mounts and processes of its own, which end with it. Returns inside of them."""
    if INSIDE in os.environ:
        return
    if os.geteuid() != 0:
        skip("needs root, to make a bare Debian")
    if shutil.which("debootstrap") is None:
        skip("needs debootstrap (Debian: debootstrap; scripts/setup --tests installs it)")
    unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode != 0:
        skip("needs the right to make namespaces (root, not in a container that forbids it)")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*unshare, sys.executable, *sys.argv], env={**os.environ, INSIDE: folder})
    sys.exit(done.returncode)


def package_source():
    """The first address from which apt-get takes Debian's packages here."""
    for path in sorted(glob.glob("/etc/apt/sources.list") + glob.glob("/etc/apt/sources.list.d/*")):
        if path.endswith((".list", ".sources")):
            if found := re.search(r"^(?:URIs:|deb(?: +\[[^\]]*\])?) +(\S+)", pathlib.Path(path).read_text(), re.M):
                return found[1]
    skip("needs Debian's packages (no source in /etc/apt)")


def make_bare_debian(root, archive):
    """A Debian 12 of the packages that each system has, with this machine's way to the packages."""
    source = package_source()
    if not archive.exists():
        made = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root, source], capture_output=True, text=True)
        if made.returncode != 0:
            skip(f"needs Debian's packages (debootstrap: {(made.stdout + made.stderr).strip().splitlines()[-1]})")
        partial = archive.with_suffix(f".{os.getpid()}")
        subprocess.run(["tar", "-cf", partial, "-C", root, "."], check=True)
        partial.rename(archive)
    else:
        subprocess.run(["tar", "-xf", archive, "-C", root], check=True)
    (root / "etc/apt/sources.list").write_text(f"deb {source} bookworm main\n")
    settings = subprocess.run(["apt-config", "dump", "Acquire"], check=True, capture_output=True, text=True).stdout
    (root / "etc/apt/apt.conf.d/machine").write_text(settings)
    (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(SLIM)
    shutil.rmtree(root / "etc/ssl/certs", ignore_errors=True)
    if os.path.isdir("/etc/ssl/certs"):
        shutil.copytree("/etc/ssl/certs", root / "etc/ssl/certs", ignore_dangling_symlinks=True)
    for name in ("resolv.conf", "hosts"):
        if os.path.exists(f"/etc/{name}"):
            shutil.copyfile(f"/etc/{name}", root / "etc" / name)
    for name in ("proc", "dev"):
        subprocess.run(["mount", "--rbind", f"/{name}", root / name], check=True)
    updated = Image(root, None).execute(["apt-get", "-o", "Acquire::Retries=0", "update", "-q"])
    if updated.returncode != 0 or "W: Failed to fetch" in updated.stderr:
        skip(f"needs Debian's packages (apt-get update: {updated.stderr.strip().splitlines()[-1]})")


class Image:
    """A root folder, and what a Dockerfile says of the programs that run in it."""

    def __init__(self, root, context):
        self.root, self.context = root, context
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.folder, self.entry, self.command = "/", [], []

    def execute(self, words, user=0):
        """Runs words in the root, as docker does: no variables but the image's own, and the way to a proxy."""
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        home = "/root" if user == 0 else "/"
        inside = ["chroot", f"--userspec={user}:{user}", "--groups=", str(self.root), "/bin/sh", "-c", f'cd {self.folder} && exec "$@"', "sh"]
        return subprocess.run([*inside, *words], env={"HOME": home, **proxies, **self.environment}, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)

    def step(self, name, argument):
        """Carries out one instruction. One that is not known here fails: nothing is left out in silence."""
        if name == "FROM" and argument == "debian:12-slim":
            return
        if name == "COPY":
            *patterns, target = shlex.split(argument)
            for pattern in patterns:
                found = sorted(self.context.glob(pattern))
                if len(found) != 1:
                    fail(f"COPY {pattern}: expected one file in the context, got {[path.name for path in found]}")
                shutil.copy(found[0], self.root / target.lstrip("/"))
        elif name == "RUN":
            done = self.execute(["/bin/sh", "-c", argument])
            if done.returncode != 0:
                fail(f"RUN {argument}\nends with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        elif name == "ENV":
            self.environment.update(word.split("=", 1) for word in shlex.split(argument))
        elif name == "WORKDIR":
            self.folder = argument
            (self.root / argument.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "ENTRYPOINT":
            self.entry = json.loads(argument)
        elif name == "CMD":
            self.command = json.loads(argument)
        else:
            fail(f"an instruction that this test does not know: {name} {argument}")

    def container(self, *arguments):
        """What `docker run -u 12345:12345 IMAGE ARGUMENTS` prints; fails where it does not end with 0."""
        done = self.execute([*self.entry, *(arguments or self.command)], USER)
        if done.returncode != 0:
            fail(f"{' '.join(arguments)} ends with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout


def make_package(build, folder):
    log = subprocess.run(["cpack", "-G", "DEB", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=zstd", "-D", "CPACK_COMPONENTS_ALL=runtime", "-B", folder],
                         cwd=build, capture_output=True, text=True)
    if log.returncode != 0:
        fail(f"cpack ends with {log.returncode}:\n{log.stdout[-2000:]}{log.stderr[-2000:]}")


def use_as_a_container(image, work):
    root = image.root
    if image.folder != "/work":
        fail(f"the documentation mounts /work, and the image works in {image.folder}")
    work.mkdir()
    os.chown(work, USER, USER)
    # docker run --read-only --tmpfs /tmp -v WORK:/work
    subprocess.run(["mount", "--bind", work, root / "work"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", root / "tmp"], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
    if not image.container("--version").startswith("trainyard "):
        fail("--version does not name the program")
    if image.container() != image.container("--help"):
        fail("without arguments, it does not print its help")
    if not re.search(r"^  processor +\S", image.container("doctor"), re.M):
        fail("doctor does not describe the processor")
    image.container("train", "--model=resnet20", "--data_name=cifar10", "--synthetic", "--device=cpu", "--batch_size=8", "--num_batches=2",
                    "--num_warmup_batches=0", "--train_dir=run")
    if not list(work.glob("run/model.ckpt-*")):
        fail(f"the training has left no checkpoint in /work/run: {sorted(os.listdir(work / 'run'))}")
    if not list(root.glob("tmp/cache/trainyard/convolutions-*")):
        fail("the measured choices of kernels are not kept in /tmp/cache")
    image.container("train", "--config=/usr/share/trainyard/recipes/shapes_resnet20.yaml", "--dump_config")
    owners = {path.stat().st_uid for path in work.rglob("*")}
    if owners != {USER}:
        fail(f"what it has written belongs to {owners}, not to the user that ran it")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    dockerfile = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else SOURCE / "deploy/Dockerfile"
    enter_namespaces()
    scratch = pathlib.Path(os.environ[INSIDE])
    scratch.chmod(0o755)
    root, context = scratch / "root", scratch / "packages"
    root.mkdir()
    # A mount point of its own, which becomes read-only and takes all mounts below it along when it is removed.
    subprocess.run(["mount", "--bind", root, root], check=True)
    make_bare_debian(root, pathlib.Path(os.environ.get("TRAINYARD_BARE_DEBIAN", build / "bare_debian.tar")))
    make_package(build, context)
    image = Image(root, context)
    for name, argument in instructions(dockerfile.read_text()):
        image.step(name.upper(), argument)
    for program in ("python3", "gcc", "g++", "cmake"):
        if image.execute(["/bin/sh", "-c", f"command -v {program}"]).returncode == 0:
            fail(f"the image holds {program}")
    for kept in ("copyright", "licences/libtorch/LICENSE", "licences/libtorch/NOTICE", "licences/nvidia_cuda_runtime/License.txt"):
        if not (root / "usr/share/doc/trainyard" / kept).exists():
            fail(f"the image leaves out a licence: /usr/share/doc/trainyard/{kept}")
    if left := list((root / "tmp").iterdir()) + list((root / "var/lib/apt/lists").glob("*Packages*")):
        fail(f"the image holds what only its making needed: {left}")
    use_as_a_container(image, scratch / "work")
    print("dockerfile_test: passed")


if __name__ == "__main__":
    main()
