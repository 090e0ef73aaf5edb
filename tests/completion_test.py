#!/usr/bin/env python3
"""Completions in real shells, and manual pages as man formats them. Shells that are not installed are skipped by name.

Usage: tests/completion_test.py PROGRAM (build/trainyard).
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

program = os.path.abspath(sys.argv.pop(1))


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


class Completion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def script(self, shell):
        path = self.root / ("completion." + shell)
        path.write_text(output_of("completion", shell))
        return path

    def need(self, name):
        if shutil.which(name) is None:
            self.skipTest(f"needs {name}")

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
        (self.root / "folder").mkdir()
        (self.root / "file").touch()
        here = os.getcwd()
        os.chdir(self.root)
        self.addCleanup(os.chdir, here)
        self.assertEqual(completed_by_bash(script, "trainyard", "train", "--data_dir=f"), {"folder"})
        self.assertEqual(completed_by_bash(script, "trainyard", "predict", "f"), {"folder", "file"})

    def test_zsh_accepts_the_script(self):
        self.need("zsh")
        script = self.script("zsh")
        code = f"""autoload -U compinit; compinit -u -d {self.root}/dump; source {script}; print $_comps[trainyard]"""
        shell = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True)
        self.assertEqual((shell.stdout.strip(), shell.stderr), ("_trainyard", ""))

    def test_fish_completes(self):
        self.need("fish")
        script = self.script("fish")

        def offered(line):
            code = f"source {script}; complete -C '{line}'"
            shell = subprocess.run(["fish", "--no-config", "-c", code], check=True, capture_output=True, text=True)
            return {entry.split("\t")[0] for entry in shell.stdout.splitlines()}

        self.assertEqual(offered("trainyard trai"), {"train", "train-ctl"})
        self.assertIn("--class_weights=balanced", offered("trainyard train --class_weights="))
        self.assertIn("--count", {flag.rstrip("=") for flag in offered("trainyard data show --")})

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
