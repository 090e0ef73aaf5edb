#!/usr/bin/env python3
"""Completions in real shells, and manual pages as man formats them. Shells that are not installed are skipped by name.

Usage: tests/completion_test.py PROGRAM (build/trainyard).
"""
import functools
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

program = os.path.abspath(sys.argv.pop(1))


@functools.cache
def output_of(*arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def flags_of(*command):
    """The flags that a command's help lists, as they are typed."""
    flags = set()
    for line in output_of(*command).splitlines():
        if found := re.match(r"  (?:-\w, )?--(\[no\])?([a-z0-9_]+)", line):
            name = found.group(2)
            if name == "help":
                continue
            flags.update(("--" + name, "--no" + name) if found.group(1) else ("--" + name + "=",))
    return flags


def completed_by_bash(script, *words):
    """What bash offers for the last of the words, which it splits at '=' as it does in a terminal."""
    split = []
    for word in words:
        for part in re.split("(=)", word):
            if part or not split or word == "":
                split.append(part)
    quoted = " ".join("'" + word + "'" for word in split)
    code = f"""source {script}
COMP_WORDS=({quoted}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE="${{COMP_WORDS[*]}}"
_trainyard 2>&1
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    shell = subprocess.run(["bash", "--norc", "-c", code], check=True, capture_output=True, text=True)
    assert shell.stderr == "", shell.stderr
    return {line for line in shell.stdout.splitlines() if line}


# Each match that completion finds goes into a file of its own, and so does the line after it. Functions of zsh that ask compadd to
# fill arrays (-A, -O, -D) add nothing to what is offered.
ZSHRC = """
unset zle_bracketed_paste
PROMPT='' LISTMAX=0
unsetopt auto_list auto_menu
@before@
autoload -U compinit; compinit -u -d @root@/dump
@after@
compadd() {
  if (( ! ${@[(I)-[^-]#[AOD]]} || ${@[(i)(-|--)]} < ${@[(i)-[^-]#[AOD]]} )); then
    local -a hits
    builtin compadd -A hits "$@"
    print -rl -- $hits >>@root@/offered
  fi
  builtin compadd "$@"
}
setopt extended_glob
complete-and-tell() { zle complete-word; print -rn -- "$BUFFER" >@root@/line.new; mv @root@/line.new @root@/line; BUFFER= }
zle -N complete-and-tell
bindkey '^I' complete-and-tell
print ready >@root@/line
"""


class Zsh:
    """A zsh on a terminal of its own, in which lines are typed."""

    def __init__(self, root, before, after):
        self.root = root
        (root / ".zshrc").write_text(ZSHRC.replace("@before@", before).replace("@after@", after).replace("@root@", str(root)))
        self.terminal, inside = pty.openpty()
        environment = {"ZDOTDIR": str(root), "HOME": str(root), "TERM": "dumb", "PATH": os.environ["PATH"], "COLUMNS": "200"}
        self.shell = subprocess.Popen(["zsh", "-d", "-i"], stdin=inside, stdout=inside, stderr=inside, env=environment, start_new_session=True)
        os.close(inside)
        self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shell.kill()
        self.shell.wait()
        os.close(self.terminal)

    def answer(self):
        """The line as it is after a completion."""
        line, until, shown = self.root / "line", time.monotonic() + 60, b""
        while not line.exists():
            if select.select([self.terminal], [], [], 0.01)[0]:
                shown += os.read(self.terminal, 65536)
            assert time.monotonic() < until and self.shell.poll() is None, f"zsh does not answer: {shown[-2000:]}"
        text = line.read_text()
        line.unlink()
        return text

    def completed(self, line):
        """The line after the tab key."""
        (self.root / "offered").write_text("")
        os.write(self.terminal, (line + "\t").encode())
        return self.answer()

    def offered(self, line):
        """The words that zsh offers for the end of the line."""
        self.completed(line)
        return {word.rstrip("/") for word in (self.root / "offered").read_text().splitlines() if word}


class Completion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def script(self, shell):
        path = self.root / ("completion." + shell)
        path.write_text(output_of("completion", shell))
        return path

    def enter_folder(self):
        """Makes a folder with a folder and a file, and works in it."""
        (self.root / "here/folder").mkdir(parents=True)
        (self.root / "here/file").touch()
        before = os.getcwd()
        os.chdir(self.root / "here")
        self.addCleanup(os.chdir, before)

    def need(self, name):
        if shutil.which(name) is None:
            self.skipTest(f"needs {name} (Debian: {name}; scripts/setup --tests installs it)")

    def test_bash_completes_commands(self):
        script = self.script("bash")
        commands = set(re.findall(r"^  ([a-z-]+) +\S", output_of("--help"), re.MULTILINE))
        self.assertGreater(len(commands), 15)
        self.assertEqual(completed_by_bash(script, "trainyard", ""), commands)
        self.assertEqual(completed_by_bash(script, "trainyard", "trai"), {"train", "train-ctl"})
        below = set(re.findall(r"^  ([a-z-]+) +\S", output_of("data", "--help"), re.MULTILINE))
        self.assertEqual(completed_by_bash(script, "trainyard", "data", ""), below)
        self.assertIn("data", completed_by_bash(script, "trainyard", "bench", "da"))

    def test_bash_completes_flags_of_each_command(self):
        script = self.script("bash")
        for command, help_of in [
            (["train"], ["train", "--help=all"]),
            (["eval"], ["eval", "--help=all"]),
            (["predict"], ["predict", "--help"]),
            (["data", "show"], ["data", "show", "--help"]),
            (["bench", "layers"], ["bench", "layers", "--help"]),
        ]:
            offered = completed_by_bash(script, "trainyard", *command, "--") - {"--help"}
            self.assertEqual(offered, flags_of(*help_of), command)
        self.assertEqual(completed_by_bash(script, "trainyard", "train", "--label_smo"), {"--label_smoothing="})
        self.assertEqual(completed_by_bash(script, "trainyard", "train", "--data_dir=x", "--batch_group"),
                         {"--batch_group_size="})

    def test_bash_completes_values(self):
        script = self.script("bash")
        self.assertEqual(completed_by_bash(script, "trainyard", "train", "--class_weights="), {"none", "balanced"})
        self.assertEqual(completed_by_bash(script, "trainyard", "train", "--class_weights=b"), {"balanced"})
        self.assertEqual(completed_by_bash(script, "trainyard", "train", "--class_weights", "n"), {"none"})

    def check(self, offered):
        """What all shells offer, where `offered` returns it for a line: names of flags without '=', values and paths alone."""
        commands = set(re.findall(r"^  ([a-z-]+) +\S", output_of("--help"), re.MULTILINE))
        self.assertEqual(offered("trainyard "), commands)
        self.assertEqual(offered("trainyard trai"), {"train", "train-ctl"})
        below = set(re.findall(r"^  ([a-z-]+) +\S", output_of("data", "--help"), re.MULTILINE))
        self.assertEqual(offered("trainyard data "), below)
        for command in ("train", "predict", "data show", "bench layers"):
            listed = flags_of(*command.split(), "--help=all" if command == "train" else "--help")
            self.assertEqual(offered(f"trainyard {command} --") - {"--help"}, {flag.rstrip("=") for flag in listed}, command)
        self.assertEqual(offered("trainyard train --data_dir=x --batch_group"), {"--batch_group_size"})
        self.assertEqual(offered("trainyard train --noauxil"), {"--noauxiliary_heads"})
        self.assertEqual(offered("trainyard train --class_weights="), {"none", "balanced"})
        self.assertEqual(offered("trainyard train --class_weights=b"), {"balanced"})
        self.assertEqual(offered("trainyard train --class_weights n"), {"none"})
        self.assertEqual(offered("trainyard train --batch_size="), {"auto"})
        self.assertEqual(offered("trainyard train --num_batches="), set())
        self.assertEqual(offered("trainyard train --data_dir=f"), {"folder"})
        self.assertEqual(offered("trainyard predict f"), {"folder", "file"})

    def test_bash_completes_as_the_others(self):
        script = self.script("bash")

        def offered(line):
            words = re.split(" +", line)
            return {word.rstrip("=") for word in completed_by_bash(script, *words)}

        self.enter_folder()
        self.check(offered)

    def test_zsh_completes(self):
        self.need("zsh")
        self.enter_folder()
        # As the package installs it: loaded by compinit from a folder of $fpath.
        functions = self.root / "functions"
        functions.mkdir()
        (functions / "_trainyard").write_text(output_of("completion", "zsh"))
        with Zsh(self.root, f"fpath=({functions} $fpath)", "") as zsh:
            self.check(zsh.offered)
            # What is typed and what completion makes of it.
            self.assertEqual(zsh.completed("trainyard doct"), "trainyard doctor ")
            self.assertEqual(zsh.completed("trainyard train --label_smo"), "trainyard train --label_smoothing=")
            self.assertEqual(zsh.completed("trainyard train --class_weights=b"), "trainyard train --class_weights=balanced ")

    def test_zsh_completes_by_a_script_that_is_sourced(self):
        self.need("zsh")
        with Zsh(self.root, "", f"source {self.script('zsh')}") as zsh:
            self.assertEqual(zsh.offered("trainyard trai"), {"train", "train-ctl"})
            self.assertEqual(zsh.offered("trainyard train --class_weights="), {"none", "balanced"})

    def test_fish_completes(self):
        self.need("fish")
        self.enter_folder()
        # As docs/howto/install.md says; fish reads the script of a program that it finds.
        folder = self.root / "config/fish/completions"
        folder.mkdir(parents=True)
        (folder / "trainyard.fish").write_text(output_of("completion", "fish"))
        (self.root / "bin").mkdir()
        (self.root / "bin/trainyard").symlink_to(program)
        environment = {"HOME": str(self.root), "XDG_CONFIG_HOME": str(self.root / "config"), "TERM": "dumb",
                       "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}

        def offered(line):
            shell = subprocess.run(["fish", "-c", f"complete -C '{line}'"], capture_output=True, text=True, env=environment)
            self.assertEqual((shell.returncode, shell.stderr), (0, ""), line)
            words = [entry.split("\t")[0] for entry in shell.stdout.splitlines()]
            return {re.sub("^--[^=]*=", "", word).rstrip("/") for word in words}

        self.check(offered)

    def test_an_unknown_shell_is_refused(self):
        refused = subprocess.run([program, "completion", "tcsh"], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("bash", refused.stderr)


class ManualPages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pages = pathlib.Path(folder.name)
        output_of("help", f"--man_pages={self.pages}")

    def test_there_is_one_of_each_command(self):
        commands = set(re.findall(r"^  ([a-z-]+) +\S", output_of("--help"), re.MULTILINE)) - {"data", "bench"}
        names = {page.name for page in self.pages.iterdir()}
        self.assertLessEqual({f"trainyard-{command}.1" for command in commands}, names)
        self.assertLessEqual({"trainyard.1", "trainyard-data-show.1", "trainyard-bench-allreduce.1"}, names)

    def test_man_formats_them_without_a_warning(self):
        if shutil.which("man") is None or shutil.which("groff") is None:
            self.skipTest("needs man and groff")
        for page in sorted(self.pages.iterdir()):
            formatted = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", str(page)],
                capture_output=True, text=True, env={**os.environ, "MANWIDTH": "100", "MAN_KEEP_FORMATTING": ""})
            self.assertEqual((formatted.returncode, formatted.stderr), (0, ""), page.name)
            if page.name == "trainyard-train.1":
                plain = re.sub(".\b|\x1b\\[[0-9;]*m", "", formatted.stdout)
                for flag in flags_of("train", "--help=all"):
                    if not flag.startswith("--no"):
                        self.assertIn(flag.removeprefix("--").rstrip("="), plain)

    def test_mandoc_formats_them_without_a_warning(self):
        if shutil.which("mandoc") is None:
            self.skipTest("needs mandoc")
        for page in sorted(self.pages.iterdir()):
            checked = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True)
            warnings = [line for line in checked.stdout.splitlines() if "missing date" not in line]
            self.assertEqual(warnings, [], page.name)


if __name__ == "__main__":
    unittest.main()
