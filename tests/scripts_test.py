"""Tests of the checks in scripts/: each one passes on a good tree and fails on the mistake it is there for.

usage: scripts_test.py [-v]       run by CTest; needs Python alone
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPTS = pathlib.Path(__file__).parent.parent / "scripts"


def run(name, *arguments, **environment):
    """(exit code, output) of a script"""
    done = subprocess.run([SCRIPTS / name, *map(str, arguments)], capture_output=True, text=True, env=environment or None)
    return done.returncode, done.stdout + done.stderr


def run_python(name, *arguments):
    done = subprocess.run([sys.executable, SCRIPTS / name, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class ScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class CheckRooms(ScriptTest):
    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", "set(TRAINYARD_ROOMS core nn models)\n")
        self.write("trainyard/core/CMakeLists.txt", "trainyard_room(\n  NAME core\n  SOURCES\n    a.cpp)\n")
        self.write("trainyard/nn/CMakeLists.txt", "trainyard_room(\n  NAME nn\n  DEPENDS core\n  SOURCES\n    a.cpp)\n")
        self.write("trainyard/models/CMakeLists.txt", "trainyard_room(NAME models DEPENDS core nn)\n")
        self.write("trainyard/nn/a.cpp", '#include <ATen/core/Tensor.h>\n#include "trainyard/core/a.h"\n')

    def check(self):
        return run("check_rooms", self.root)

    def test_accepts_rooms_that_are_named_in_depends(self):
        self.write("trainyard/models/a.cpp", '#include "trainyard/nn/a.h"\n#include "trainyard/models/a.h"\n')
        self.write("trainyard/models/a_test.cpp", "#include <ATen/core/Tensor.h>\n")
        self.assertEqual(self.check(), (0, ""))

    def test_refuses_an_upward_include(self):
        self.write("trainyard/core/a.cpp", '\n#include "trainyard/nn/a.h"\n')
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn("core/a.cpp:2: room core includes trainyard/nn/a.h", output)

    def test_refuses_libtorch_in_models(self):
        self.write("trainyard/models/a.h", "#include <c10/util/Exception.h>\n")
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn("models/a.h:1", output)

    def test_refuses_the_header_of_everything(self):
        self.write("trainyard/nn/b.cpp", "#include <torch/torch.h>\n")
        self.assertEqual(self.check()[0], 1)

    def test_refuses_a_folder_that_is_no_room(self):
        self.write("trainyard/attic/a.cpp", "")
        self.assertEqual(self.check()[0], 1)


class CheckHeaderTrap(ScriptTest):
    def check(self, flags):
        for name in ("wheel/ATen/ATen.h", "wheel/oneapi/dnnl/dnnl.h", "links/ATen/ATen.h"):
            self.write(name, "")
        entry = {"directory": str(self.root), "file": "a.cpp", "command": f"g++ {flags} -c a.cpp"}
        self.write("compile_commands.json", json.dumps([entry]))
        return run("check_header_trap", self.root)

    def test_accepts_the_folder_of_links(self):
        self.assertEqual(self.check(f"-isystem {self.root}/links -I/usr/include"), (0, ""))

    def test_refuses_the_wheels_folder_however_it_is_given(self):
        (self.root / "alias").symlink_to(self.root / "wheel")
        for flags in ("-isystem wheel", "-Iwheel", f"-I{self.root}/links/../wheel", "-isystem alias", "-isystem=wheel"):
            with self.subTest(flags):
                code, output = self.check(flags)
                self.assertEqual(code, 1)
                self.assertIn("a.cpp", output)


class CheckBuildTime(ScriptTest):
    def check(self, seconds, source="a.cpp", **environment):
        self.write("compile_commands.json", json.dumps([{"file": str(self.root / name)} for name in (source, "cached.cpp")]))
        self.write("compile_times.log", f"gone.cpp\t99 1\n{source}\t50.0 1\n{source}\t{seconds - 1} 1.0\n")
        return run("check_build_time", self.root, PATH="/usr/bin:/bin", **environment)

    def test_accepts_15_seconds_of_the_last_compilation(self):
        self.assertEqual(self.check(15), (0, "1 files took 15 s, the slowest 15.0 s; 1 not measured\n"))

    def test_refuses_more(self):
        code, output = self.check(15.2)
        self.assertEqual(code, 1)
        self.assertIn("a.cpp: 15.2 s to compile", output)

    def test_a_slower_machine_may_scale_the_budget(self):
        self.assertEqual(self.check(29, TRAINYARD_BUILD_TIME_SCALE="2")[0], 0)

    def test_the_precompiled_header_is_exempt_but_not_from_the_total(self):
        self.assertEqual(self.check(40, source="cmake_pch.hxx.cxx")[0], 0)
        self.assertEqual(self.check(1501, source="cmake_pch.hxx.cxx")[0], 1)

    def test_time_compile_notes_the_source_and_keeps_the_exit_code(self):
        done = subprocess.run([SCRIPTS / "time_compile", "bash", "-c", "exit 3", "-o", "a.o", "a.cpp", "-MD"], cwd=self.root)
        self.assertEqual(done.returncode, 3)
        noted = (self.root / "compile_times.log").read_text()
        self.assertRegex(noted, r"^a\.cpp\t[0-9.]+ [0-9.]+\n$")


class ReportTests(ScriptTest):
    SKIPPED = '<testcase name="A.S" status="notrun"><skipped message=""/><system-out>a_test.cpp:3: Skipped\nneeds x</system-out></testcase>'
    PASSED = '<testcase name="A.P" status="run"/>'
    FAILED = '<testcase name="A.F" status="fail"><failure message=""/></testcase>'

    def report(self, cases, allowed, preset="release"):
        junit = self.write("tests.xml", f"<testsuite>{cases}</testsuite>")
        return run("report_tests", junit, self.write("allowed.txt", allowed), preset)

    def test_names_skips_that_are_allowed(self):
        for allowed in ("A.S all # why\n", "# a comment\n\nA.* tsan,release\n"):
            self.assertEqual(self.report(self.SKIPPED + self.PASSED, allowed),
                             (0, "skipped: A.S: needs x\n1 passed, 0 failed, 1 skipped\n"))

    def test_refuses_skips_that_are_not(self):
        code, output = self.report(self.SKIPPED + self.PASSED, "A.Other all\n")
        self.assertEqual(code, 1)
        self.assertIn("refused: A.S", output)

    def test_a_skip_is_allowed_for_its_presets_only(self):
        allowed = "A.S tsan,asan-ubsan  # why\n"
        self.assertEqual(self.report(self.SKIPPED + self.PASSED, allowed, "tsan")[0], 0)
        self.assertEqual(self.report(self.SKIPPED + self.PASSED, allowed, "asan-ubsan")[0], 0)
        for preset in ("release", "asan", "san"):
            code, output = self.report(self.SKIPPED + self.PASSED, allowed, preset)
            self.assertEqual(code, 1)
            self.assertRegex(output, f"refused: A.S was skipped, but .*allowed.txt does not allow it for {preset}\n")

    def test_a_line_without_presets_is_an_error(self):
        code, output = self.report(self.PASSED, "# a comment\nA.S  # why\n")
        self.assertEqual(code, 1)
        self.assertIn("allowed.txt:2: expected a test name and its presets", output)

    def test_refuses_failures_and_an_empty_run(self):
        self.assertEqual(self.report(self.FAILED + self.PASSED, "")[0], 1)
        self.assertEqual(self.report("", "")[0], 1)


class BenchCompare(ScriptTest):
    def compare(self, time, baseline):
        def result(name, median):
            return json.dumps({"benchmarks": [{"run_name": name, "aggregate_name": "median", "real_time": median, "time_unit": "us"}]})

        self.write("r/trainyard_core_bench.trainyard_calibration.json", result("calibration", 2))
        self.write("r/trainyard_core_bench.trainyard_core_bench.json", result("crc", time))
        return run("bench_compare", self.root / "r", self.write("baseline.json", json.dumps(baseline)))

    def test_compares_multiples_of_the_calibration(self):
        code, output = self.compare(12, {"core/crc": 5.0})
        self.assertEqual(code, 0)
        self.assertIn("core/crc: 1.20 times the baseline", output)

    def test_refuses_a_slower_one_and_one_that_vanished(self):
        self.assertEqual(self.compare(12.6, {"core/crc": 5.0})[0], 1)
        self.assertEqual(self.compare(10, {"core/crc": 5.0, "core/gone": 1.0})[0], 1)

    def test_a_new_one_is_named(self):
        code, output = self.compare(10, {})
        self.assertEqual(code, 0)
        self.assertIn("core/crc: new", output)


class UnpackLibtorch(ScriptTest):
    NAMES = ["torch/include/ATen/ATen.h", "torch/version.py", "torch/lib/libtorch_cpu.so", "torch/lib/libc10.so",
             "torch/lib/libgomp.so.1", "torch/nn/functional.py", "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"]

    def unpack(self, names):
        self.root.joinpath("wheels").mkdir()
        with zipfile.ZipFile(self.root / "wheels" / "a.whl", "w") as archive:
            for name in names:
                archive.writestr(name, "x")
        return run_python("unpack_libtorch.py", self.root / "wheels", self.root / "out")

    def test_keeps_what_cpp_needs_and_nothing_else(self):
        self.assertEqual(self.unpack(self.NAMES), (0, ""))
        kept = {str(path.relative_to(self.root / "out")) for path in (self.root / "out").rglob("*") if path.is_file()}
        self.assertEqual(kept, set(self.NAMES) - {"torch/lib/libgomp.so.1", "torch/nn/functional.py"})
        self.assertFalse(list((self.root / "wheels").iterdir()))

    def test_refuses_a_wheel_that_lacks_a_library(self):
        code, output = self.unpack(self.NAMES[:3])
        self.assertEqual(code, 1)
        self.assertIn("libc10.so is in none of the wheels", output)


if __name__ == "__main__":
    unittest.main()
