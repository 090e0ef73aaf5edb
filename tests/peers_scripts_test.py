"""Tests of the comparisons with other programs (benchmarks/peers), whose sides only pretend here.

usage: peers_scripts_test.py [-v]       run by CTest; needs Python alone
"""

import json
import os
import subprocess
import sys
import unittest

from scripts_test import SCRIPTS, ScriptTest


def noting_program(folder):
    """The beginning of a program that pretends to be another: it notes each of its runs by a letter in `folder`, and counts them."""
    return f"""#!{sys.executable}
here = {str(folder)!r}
def note(letter):
    open(here + "/order", "a").write(letter)
def count(letter):
    return open(here + "/order").read().count(letter)
"""


class ComparePeers(ScriptTest):
    """benchmarks/peers/compare with programs that only pretend to train. Each appends a letter to `order`: o and f for ours (f: one
    step), O and F with one thread, u without kept choices, k for PyTorch, c and a for torch.compile (a: max-autotune), t for TensorFlow."""

    PROGRAM = """import os, sys, time
one = "--num_intra_threads=1" in sys.argv
if "--num_batches=1" in sys.argv:
    note("u" if "XDG_CACHE_HOME" in os.environ else "F" if one else "f")
    if count("F" if one else "f") < 3 and os.path.exists(here + "/much_to_measure"):
        print("info: the others follow the rule now, and are measured by the next run", file=sys.stderr)
    time.sleep(0.2)
    print("1\\timages/sec: 5.0 +/- 0.0", flush=True)
    time.sleep(3 if os.path.exists(here + "/slow_end") else 0)
elif one:
    note("O")
    print("total images/sec: 30")
else:
    note("o")
    print(f"total images/sec: {[60, 90, 30][count('o') % 3] + (5 if os.environ.get('TRAINYARD_MAX_CPU_ISA') == 'avx2' else 0)}")
"""
    PEER = """import json, os, sys
if sys.argv[1] == "-c":
    sys.exit(print(json.dumps({"PyTorch": "2.15.0", "TensorFlow": "2.21.0"})))
script, model, batch, dtype, mode, steps = sys.argv[1:]
letter = "t" if "tensorflow" in script else {"eager": "k", "compile": "c", "autotune": "a"}[mode]
note(letter)
if os.path.exists(here + "/broken_" + letter):
    print("Traceback", file=sys.stderr)
    sys.exit("RuntimeError: no compiler")
speed = {"k": 40, "c": 30, "a": 35, "t": 10}[letter] if "MALLOC_TRIM_THRESHOLD_" in os.environ else 1
if os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2":
    speed /= 2
print(json.dumps({"images_per_sec": speed, "peak_rss_mib": 1e6, "first_step_done_s": 7.5}))
"""

    OTHER = "| resnet20, 128 | Zen 99 | fp32 | 20.0 | **10.00** | – | – | – | 2.00 | 1.35 |" + " – |" * 11

    def setUp(self):
        super().setUp()
        shared = noting_program(self.root)
        for name, body in (("program", self.PROGRAM), ("python", self.PEER)):
            self.write(name, shared + body).chmod(0o755)
        self.page = self.write("page.md", "# By hand\n<!-- made by make bench: begin -->\nan older text\n\n### Training\n\n| model, batch | processor | level |\n"
                               f"| --- | --- | --- |\n{self.OTHER}\n<!-- made by make bench: end -->\nby hand\n")

    def compare(self, *arguments):
        done = subprocess.run([SCRIPTS.parent / "benchmarks/peers/compare", f"--program={self.root}/program", f"--python={self.root}/python",
                               f"--results={self.root}/results", f"--page={self.page}", *arguments], capture_output=True, text=True,
                              env={name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"})
        return done.returncode, done.stdout + done.stderr

    def order(self):
        return (self.root / "order").read_text()

    def cells(self, row, level="fp32"):
        """of the row's line that this machine has measured"""
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in self.page.read_text().splitlines() if line.startswith(f"| {row} |")]
        found = [cells for cells in lines if cells[1] != "Zen 99" and cells[2] == level]
        self.assertEqual(len(found), 1, lines)
        return found[0]

    def test_takes_turns_and_writes_medians_between_the_markers(self):
        code, output = self.compare("--rounds=3", "resnet20")
        self.assertEqual(code, 0, output)
        # Kernel choices once, then each round begins one side later; one thread and a first step without choices once.
        self.assertEqual(self.order(), "f" "of" "FO" "u" "kcat" "kcat" "of" "cat" "of" "k")
        text = self.page.read_text()
        self.assertTrue(text.startswith("# By hand\n<!-- made by make bench: begin -->\n## "), text)
        self.assertTrue(text.endswith("```\n<!-- made by make bench: end -->\nby hand\n"), text)
        self.assertNotIn("an older text", text)
        self.assertIn(self.OTHER, text)
        self.assertIn("Zen 99, fp32: 2.00 over 1 of the nine, the least 2.00", text)
        cells = self.cells("resnet20, 128")
        self.assertEqual(cells[3:11], ["60.0", "**40.0**", "30.0", "35.0", "10.00", "1.50", "1.35", "2.00"])
        memory, theirs, ratio, first_step, unprepared, their_first_step, versions, rounds = cells[11:19]
        self.assertGreater(int(memory), 0)
        self.assertGreaterEqual(float(first_step), 0.2)
        self.assertGreaterEqual(float(unprepared), 0.2)
        self.assertEqual((theirs, ratio, their_first_step, versions, rounds), ("1,000,000", "0.00", "7.5", "2.15.0, 2.21.0", "3"))
        self.assertIn("fp32: 1.50 over 1 of the nine, the least 1.50", text)
        self.assertIn("\n.venv-peers/bin/python ", text)
        self.assertNotIn(f"{self.root}/python", text)

    def test_our_runs_count_when_all_kernels_are_measured(self):
        self.write("much_to_measure", "")
        self.compare("--rounds=1", "--peers", "PyTorch", "--", "resnet20")
        self.assertEqual(self.order(), "fff" "of" "FFF" "O" "u" "k")
        source = (SCRIPTS.parent / "trainyard/nn/cpu/convolution/choice/convolution_choice.cpp").read_text()
        self.assertIn("are measured by the next run", source, "which the comparison looks for in what the program says")

    def test_a_level_limits_all_programs(self):
        self.compare("--rounds=1", "resnet20-avx2")
        self.assertEqual(self.cells("resnet20, 128", "avx2")[3:9], ["95.0", "**20.0**", "15.00", "17.50", "5.00", "4.75"])

    def test_groups_have_a_row_for_each_level(self):
        code, output = self.compare("--rounds=0", "--levels", "bf16", "avx2", "--minutes=0", "training")
        self.assertIn("the minutes are over before resnet50-bf16", output)
        self.assertEqual(self.compare("--rounds=1", "--peers", "PyTorch", "--levels", "bf16", "--", "training")[0], 1)
        self.assertNotIn("c", self.order())
        self.assertEqual(self.cells("vit_b_16, 16", "bf16")[5], "–")

    def test_the_first_step_ends_when_its_line_comes(self):
        self.write("slow_end", "")
        self.compare("--rounds=1", "resnet20")
        self.assertLess(float(self.cells("resnet20, 128")[14]), 3)

    def test_continues_where_it_stopped(self):
        self.compare("--rounds=1", "resnet20")
        results = self.root / "results/resnet20.jsonl"
        lines = results.read_text().splitlines(keepends=True)
        results.write_text("".join(lines[:6]) + lines[6][:20])
        self.compare("--rounds=1", "resnet20")
        self.assertEqual(self.order(), "fofFOukcat" "at")
        self.assertEqual(len(results.read_text().splitlines()), 8)
        self.compare("--rounds=2", "resnet20")
        self.assertEqual(self.order(), "fofFOukcat" "at" "kcatfof")

    def test_starts_over_under_other_conditions(self):
        self.compare("--rounds=1", "resnet20")
        self.write("python", (self.root / "python").read_text().replace("2.15.0", "2.16.0"))
        output = self.compare("--rounds=1", "resnet20")[1]
        self.assertIn("measured under other conditions", output)
        self.assertEqual(self.order(), "fofFOukcat" * 2)

    def test_names_a_peer_that_fails_and_tries_it_again(self):
        self.write("broken_c", "")
        code, output = self.compare("--rounds=1", "resnet20")
        self.assertEqual(code, 0)
        self.assertIn("torch.compile failed: RuntimeError: no compiler (exit status 1)", output)
        self.assertIn("- resnet20: torch.compile failed: `RuntimeError: no compiler", self.page.read_text())
        self.assertEqual(self.cells("resnet20, 128")[5], "failed")
        (self.root / "broken_c").unlink()
        self.compare("--rounds=1", "resnet20")
        self.assertEqual(self.order(), "fofFOukcat" "c")
        self.assertNotIn("failed", self.page.read_text())

    def test_a_row_under_its_floor_fails_and_other_rows_stay_in_the_table(self):
        self.compare("--rounds=1", "resnet20")
        (self.root / "order").write_text("")
        self.compare("--rounds=1", "vgg16")
        (self.root / "order").write_text("o")
        code, output = self.compare("--rounds=1", "resnet18")  # 30 images/s of ours, 40 of the best
        self.assertEqual(code, 1)
        self.assertIn("under the floor: resnet18", output)
        self.assertEqual(self.cells("resnet18, 16")[8:10], ["0.75", "1.35 (missed)"])
        self.assertEqual(self.cells("resnet20, 128")[8:10], ["2.25", "1.35"])
        self.assertEqual(self.cells("torchvision/vgg16, 8")[8:10], ["2.25", "1.35"])

    def test_a_comparison_without_time_leaves_the_page(self):
        before = self.page.read_text()
        code, output = self.compare("--minutes=0", "resnet20")
        self.assertEqual(code, 1)
        self.assertIn("nothing was measured", output)
        self.assertEqual(self.page.read_text(), before)

    def test_refuses_unknown_rows_and_a_page_without_markers(self):
        self.assertIn("no row resnet51; known: alexnet ", self.compare("resnet51")[1])
        self.page.write_text("# By hand\n")
        self.assertIn("lacks the lines", self.compare("--rounds=1", "resnet20")[1])


class CompareExchange(ScriptTest):
    """benchmarks/peers/exchange with programs that only pretend: mpiexec starts its program once, compilers make what prints
    fixed times. `order` gets a letter of each measurement: o ours, d and p Debian's and PyPI's Open MPI, m MPICH, c oneCCL,
    g gloo, s DeepSpeed; t ours in training, x DDP."""

    MPIEXEC = """import os, sys
arguments = sys.argv[3:]
if arguments[0] == "--oversubscribe":
    arguments = arguments[1:]
os.environ["RANKS"] = sys.argv[2]
os.execv(arguments[0], arguments)
"""
    COMPILER = """import os, sys
name = sys.argv[sys.argv.index("-o") + 1]
letter = {"open_mpi_of_debian": "d", "open_mpi": "p", "mpich": "m", "oneccl": "c"}[name.rpartition("all_reduce_")[2]]
if os.path.exists(here + "/broken_" + letter):
    print("x.c:3: error: no mpi.h\\n" + "-" * 20, file=sys.stderr)
    sys.exit(1)
open(name, "w").write(open(here + "/timing").read() + f"time({letter!r})\\n")
os.chmod(name, 0o755)
"""
    TIMING = """import json, os, sys
def time(letter):
    note(letter)
    sizes = [argument.split(":")[0] for argument in sys.argv[1:] if argument[0].isdigit() and ":" in argument]
    scale = {"d": 4, "p": 3, "m": 6, "c": 5, "g": 8, "s": 7}[letter]
    print(json.dumps({"seconds": {size: [scale * 1e-9 * int(size), 99] if letter != "g" else [99, scale * 1e-9 * int(size)] for size in sizes}}))
"""
    PYTHON = """if sys.argv[1] == "-c":
    sys.exit(print(json.dumps({"torch": "2.15.0", "deepspeed": "0.19", "openmpi": "5.0", "mpich": "5.1", "oneccl": "2022"})))
if sys.argv[2:] == ["build"]:
    sys.exit()
if "train_ddp" in sys.argv[1]:
    note("x")
    sys.exit(print(json.dumps({"images_per_sec": 100 if os.environ.get("MALLOC_TRIM_THRESHOLD_") else 9})))
time({"gloo": "g", "deepspeed": "s"}[sys.argv[2]])
"""
    PROGRAM = """import json, os, sys
flags = dict(argument[2:].split("=") for argument in sys.argv[1:] if argument.startswith("--") and "=" in argument)
ranks = int(os.environ.get("RANKS", 1))
if sys.argv[1] == "bench":
    note("o")
    each = 2e-9 if count("o") != 2 else 5e-9  # the second of three is slow
    timings = [{"operation": name, "bytes": int(size), "median_seconds": each * int(size) * (0.5 if name == "copy" else 1)}
               for size in flags["sizes"].split(",") if size for name in ("all-reduce", "MPI_Allreduce", "copy")]
    updates = [{"operation": name, "median_seconds": value} for name, value in
               (("copy", 0.004), ("optimizer", 0.005), ("reduce, then update", 0.02), ("reduce and update", 0.009), ("checked in between", 0.01))]
    json.dump({"timings": timings, "updates": updates if "optimizer" in flags else []}, open(flags["json"], "w"))
elif flags["num_batches"] != "2":
    note("t")
    print("waiting for others 1.5 % and moving numbers 3 % of the time of 2 ranks", file=sys.stderr)
    print(f"total images/sec: { {1: 150, 2: 160, 4: 120}[ranks] }")
else:
    print("total images/sec: 1")
"""

    def setUp(self):
        super().setUp()
        shared = noting_program(self.root)
        self.write("timing", shared + self.TIMING)
        self.write("order", "")
        for folder in ("bin", "venv/bin", "venv-openmpi/bin", "venv-mpich/bin", "venv-oneccl/bin"):
            for name, body in (("mpiexec", self.MPIEXEC), ("mpicc", self.COMPILER), ("g++", self.COMPILER), ("python", self.TIMING + self.PYTHON),
                               ("mpirun", 'print("mpirun (Open MPI) 4.1.4")')):
                if (name == "python") == (folder != "bin") or name.startswith("mpi"):
                    self.write(f"{folder}/{name}", shared + body).chmod(0o755)
        self.write("bin/g++", shared + self.COMPILER).chmod(0o755)
        self.write("program", shared + self.PROGRAM).chmod(0o755)
        self.page = self.write("page.md", "by hand\n<!-- made by benchmarks/peers/exchange: begin -->\nolder\n<!-- made by benchmarks/peers/exchange: end -->\n")

    def exchange(self, *arguments):
        done = subprocess.run([SCRIPTS.parent / "benchmarks/peers/exchange", f"--program={self.root}/program", f"--environments={self.root}/venv",
                               f"--results={self.root}/r/exchange.jsonl", f"--page={self.page}", *arguments], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"})
        return done.returncode, done.stdout + done.stderr

    def order(self):
        return (self.root / "order").read_text()

    def cells(self, begin):
        line = next(line for line in self.page.read_text().splitlines() if line.startswith(begin))
        return [cell.strip() for cell in line.split("|")[1:-1]]

    def test_takes_turns_and_writes_medians_and_the_best_peer(self):
        code, output = self.exchange("--rounds=3", "2 ranks")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.order(), "ogdpmcs" "gdpmcso" "dpmcsog")
        # 2 ns a byte, the lower of both times of peers, 1 ns of a copy
        self.assertEqual(self.cells("| 64 KiB"), ["64 KiB", "131.1 us (missed)", "524.3 us", "262.1 us", "**196.6 us**", "393.2 us", "327.7 us", "458.8 us",
                                                  "1.50, wanted 1.5", "65.5 us", "2.00"])
        self.assertEqual(self.cells("| 100 MiB")[-1], "2.00, at most 1.25 (missed)")
        self.assertIn("PyTorch 2.15.0, DeepSpeed 0.19, Open MPI 5.0, MPICH 5.1, oneCCL 2022, Open MPI of Debian 4.1.4", self.page.read_text())
        self.assertNotIn("older", self.page.read_text())

    def test_peers_that_spin_are_left_out_where_ranks_outnumber_cores(self):
        self.exchange("--rounds=1", "4 ranks")
        crowded = len(os.sched_getaffinity(0)) < 4
        self.assertEqual(self.order(), "ogdp" if crowded else "ogdpmcs")
        self.assertEqual(self.cells("| 64 KiB")[5], "–" if crowded else "393.2 us")
        self.assertEqual("spin where ranks outnumber cores" in self.page.read_text(), crowded)

    def test_trainings_and_updates_are_compared_with_what_is_wanted(self):
        code, output = self.exchange("--rounds=2", "update", "resnet50")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.order(), "otxtt" "oxttt")
        self.assertEqual(self.cells("| resnet50, 16 a rank"), ["resnet50, 16 a rank", "160", "100", "150", "120", "1.60, wanted 1.5", "1.07, wanted 1",
                                                               "0.75, wanted 0.85 (missed)", "1.5 %", "2"])
        self.assertEqual(self.cells("| 4.00 ms")[-2:], ["10.00 ms", "1.00, at most 0.6 (missed)"])

    def test_names_peers_that_are_missing_or_fail_and_makes_the_page_again(self):
        self.write("broken_m", "")
        (self.root / "venv-oneccl").rename(self.root / "elsewhere")
        code, output = self.exchange("--rounds=2", "2 ranks")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.order(), "ogdps" "gdpso")
        text = self.page.read_text()
        self.assertIn("- MPICH failed: `x.c:3: error: no mpi.h (exit status 1)`", text)
        self.assertIn("- oneCCL failed: `venv-oneccl is not there; run scripts/setup --peers-exchange`", text)
        self.assertIn("oneCCL not installed", text)
        self.assertEqual(self.cells("| 64 KiB")[5:7], ["–", "–"])
        self.page.write_text(text.replace("64 KiB", "by mistake"))
        self.assertEqual(self.exchange("--only-page")[0], 0)
        self.assertEqual(self.page.read_text(), text)

    def test_a_side_of_ours_that_fails_fails_the_comparison(self):
        self.write("program", "#!/bin/sh\necho 'error: no ranks' >&2\nexit 1\n").chmod(0o755)
        code, output = self.exchange("--rounds=1", "2 ranks")
        self.assertEqual(code, 1, output)
        self.assertIn("of ours failed: 2 ranks (Trainyard)", output)
        self.assertIn("- Trainyard failed: `error: no ranks (exit status 1)`", self.page.read_text())

    def test_refuses_unknown_rows(self):
        self.assertIn("no row 3 ranks; known: 2 ranks, 4 ranks, update, resnet50, resnet20", self.exchange("3 ranks")[1])


class CompareServers(ScriptTest):
    """benchmarks/peers/servers with programs that only pretend: s ours with servers, whose second run fails, h ours without."""

    PROGRAM = """import sys
letter = "s" if any(argument.startswith("--ps=") for argument in sys.argv) else "h"
note(letter)
if letter == "s" and count("s") == 2:
    sys.exit("error: no port")
print(f"total images/sec: {[100, 50, 300][count(letter) - 1]}")
"""
    PEER = """import json, os, sys
if sys.argv[3:5] == ["worker", "0"]:
    print(json.dumps({"images_per_sec": 50 if "MALLOC_TRIM_THRESHOLD_" in os.environ else 1}))
"""

    def test_ratios_are_those_of_one_round_and_peers_keep_their_memory(self):
        shared = noting_program(self.root)
        for name, body in (("program", self.PROGRAM), ("python", self.PEER)):
            self.write(name, shared + body).chmod(0o755)
        done = subprocess.run([SCRIPTS.parent / "benchmarks/peers/servers", f"--program={self.root}/program", f"--python={self.root}/python", "--rounds=3"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("round 2: servers failed: error: no port (exit status 1)", done.stderr)
        lines = {line.split("|")[1].split("`")[1 if "`" in line else 0].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
                 for line in done.stdout.splitlines() if line.startswith("| ") and "median" not in line}
        self.assertEqual(lines["trainyard launch --ps=1 --workers=2 -- train FLAGS"], ["200.00", "", "", "2"])
        self.assertEqual(lines["trainyard launch -n 2 -- train --variable_update=horovod FLAGS"], ["100.00", "1.00", "0.85", "3"])
        self.assertEqual(lines["TensorFlow's parameter server"], ["50.00", "4.00", "1.4", "3"])


class CompareInference(ScriptTest):
    """benchmarks/peers/inference with sides that only pretend to compute."""

    SIDE = f"#!{sys.executable}" """
import json, os, sys
model, dtype, batch = sys.argv[1:4]
print(json.dumps({"gflop": 8, "gflops": 1200}) if len(sys.argv) > 4 else "{}", flush=True)
if len(sys.argv) > 4:
    open(sys.argv[4], "w")
limited = os.environ.get("TRAINYARD_MAX_CPU_ISA") == "avx2"
for line in sys.stdin:
    streams = int(line.split()[0])
    speed = {"fp32": 100, "int8": 300}[dtype] / (2.5 if limited and dtype == "int8" else 1) * (1.2 if streams == 2 else 1)
    print(json.dumps({"images_per_sec": speed}), flush=True)
"""
    PEER = f"#!{sys.executable}" """
import json, os, sys
if sys.argv[1] == "-c":
    sys.exit(print(json.dumps({"OpenVINO": "2026.4.1"})))
kind = sys.argv[2]
if kind == "zentorch":
    sys.exit("no such instruction")
print("{}", flush=True)
for line in sys.stdin:
    streams = int(line.split()[0])
    speed = {"openvino": 80 + 10 * streams, "onnxruntime": 60, "torch": 50 + 5 * int(os.environ.get("TORCHINDUCTOR_FREEZING", 0))}[kind]
    print(json.dumps({"images_per_sec": speed}), flush=True)
"""
    OTHER = "| resnet50, 1, fp32 | Zen 99 | 30.0 | 30.0 | – | **20.0** | – | – | – | – | – | 1.50 | 1.10 | 2 | 2026-11-26, 0 | yes |"

    def setUp(self):
        super().setUp()
        for name, body in (("side", self.SIDE), ("python", self.PEER)):
            self.write(name, body).chmod(0o755)
        markers = "<!-- made by benchmarks/peers/inference: {} -->"
        self.page = self.write("page.md", f"by hand\n{markers.format('begin')}\nolder\n\n### With the processor's instructions\n\n"
                               f"| model, batch, dtype | processor |\n| --- | --- |\n{self.OTHER}\n{markers.format('end')}\nbehind\n")

    def compare(self, *arguments):
        python = f"{self.root}/python"
        done = subprocess.run([SCRIPTS.parent / "benchmarks/peers/inference", "--rounds=1", "--seconds=0.01", f"--side={self.root}/side",
                               f"--python={python}", f"--results={self.root}/results", f"--page={self.page}", *arguments], capture_output=True,
                              text=True, env={**os.environ, "TRAINYARD_ZENTORCH_PYTHON": python})
        return done.returncode, done.stdout + done.stderr

    def test_each_processor_has_its_lines(self):
        code, output = self.compare("resnet50-1-fp32", "resnet50-1-avx2")
        self.assertEqual(code, 1, output)  # 1.60 of 1.70
        self.assertIn("under what is wanted: resnet50-1-avx2\n", output)
        text = self.page.read_text()
        self.assertIn(self.OTHER, text)
        self.assertNotIn("older", text)
        self.assertTrue(text.startswith("by hand\n") and text.endswith("\nbehind\n"), text)
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| resnet50, 1") and line not in self.OTHER]
        self.assertEqual(lines[0][2:13], ["120", "100", "80 %", "**100**", "60.0", "50.0", "55.0", "failed", "–", "1.20", "1.10"])
        self.assertEqual(lines[1][2:6], ["144", "120", "1.20", "1.70 (missed)"])
        self.assertIn("Zen 99, fp32 and bf16: 1.50 over 1 (wanted 1.25), the least 1.50", text)
        self.assertIn("- resnet50-1-fp32: zentorch failed: `no such instruction (exit status 1)`", text)

    def test_chosen_peers_come_first_and_others_later(self):
        self.assertEqual(self.compare("--peers", "ONNX Runtime", "--", "resnet50-1-fp32")[0], 0)
        line, = (line for line in self.page.read_text().splitlines() if line.startswith("| resnet50, 1") and line not in self.OTHER)
        self.assertIn("| – | **60.0** | – | – | – | – | 2.00 |", line)
        self.compare("resnet50-1-fp32")
        line, = (line for line in self.page.read_text().splitlines() if line.startswith("| resnet50, 1") and line not in self.OTHER)
        self.assertIn("| **100** | 60.0 | 50.0 | 55.0 | failed | – | 1.20 |", line)

    def test_8_bits_are_compared_with_openvinos_and_with_our_file_in_openvino(self):
        code, output = self.compare("mobilenet_v2-32-int8")
        self.assertEqual(code, 0, output)
        line, = (line for line in self.page.read_text().splitlines() if line.startswith("| mobilenet_v2, 32, int8"))
        self.assertIn("| 3.60 | 1.00 |", line)

    def test_networks_are_those_of_one_commit_and_version(self):
        def networks():
            folder, = (self.root / "results/files/networks").iterdir()
            return folder.name, sorted(file.name for file in folder.iterdir())
        self.compare("resnet50-1-int8")
        name, files = networks()
        self.assertEqual(files, ["resnet50.fp32.onnx", "resnet50.int8.onnx"])
        self.compare("resnet50-1-int8")
        self.assertEqual(networks(), (name, files))
        self.write("python", self.PEER.replace("2026.4.1", "2026.5.0"))
        self.compare("resnet50-1-int8")
        self.assertNotEqual(networks()[0], name)
        self.assertEqual(networks()[1], files)

    def test_cells_of_avx2_need_no_peer(self):
        self.page.write_text(self.page.read_text().replace("older", "Sentences. Last measured: Zen 99, 2 cores; OpenVINO 2025.1."))
        (self.root / "python").unlink()
        code, output = self.compare("resnet50-1-avx2")
        self.assertEqual(code, 1, output)  # 1.20 of 1.70
        text = self.page.read_text()
        self.assertIn("\n| resnet50, 1 | ", text)
        self.assertIn(" Last measured: Zen 99, 2 cores; OpenVINO 2025.1.\n", text)
        self.assertIn(self.OTHER, text)
        self.write("python", self.PEER).chmod(0o755)
        self.compare("resnet50-1-fp32", "resnet50-1-avx2")
        text = self.page.read_text()
        self.assertIn("OpenVINO 2026.4.1.\n", text)
        self.assertNotIn("OpenVINO 2025.1", text)
        (self.root / "python").unlink()
        before = self.page.read_text()
        code, output = self.compare("resnet50-1-fp32")
        self.assertEqual(code, 1)
        self.assertIn("which runs OpenVINO, NNCF, ONNX Runtime; make it: scripts/setup --peers-inference", output)
        self.assertEqual(self.page.read_text(), before)


class FineTune(ScriptTest):
    """benchmarks/peers/fine_tune with programs that only pretend to train."""

    PEER = f"#!{sys.executable}" """
import json, os
seconds = 2 if "MALLOC_TRIM_THRESHOLD_" in os.environ else 20
print(json.dumps({"program": "pytorch", "seed": 1, "epochs": 2, "val": 0.5, "test": 0.5, "train_seconds": seconds}))
"""

    def test_pytorch_keeps_its_memory(self):
        self.write("program", "#!/bin/sh\necho 'Accuracy @ 1 = 0.5000'\n").chmod(0o755)
        self.write("python", self.PEER).chmod(0o755)
        done = subprocess.run([SCRIPTS.parent / "benchmarks/peers/fine_tune", self.root / "program", "weights", "data", "1", self.root / "python"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pytorch: 50.00 % of the test images (from 50.00 to 50.00), 1.00 s an epoch", done.stdout)


if __name__ == "__main__":
    unittest.main()
