"""Tests of the scripts that bring LibTorch and CUDA, check a GPU, and make C++ of kernels (tests/cuda_emulation).

usage: gpu_scripts_test.py [-v]       run by CTest; needs Python alone
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import unittest
import zipfile

from scripts_test import SCRIPTS, ScriptTest, run_python


def write_wheel(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")


class UnpackLibtorch(ScriptTest):
    NAMES = ["torch/include/ATen/ATen.h", "torch/version.py", "torch/lib/libtorch_cpu.so", "torch/lib/libc10.so",
             "torch/lib/libgomp.so.1", "torch/nn/functional.py", "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"]

    CUDA_NAMES = ["torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so"]

    def unpack(self, names, *flags):
        self.root.joinpath("wheels").mkdir()
        write_wheel(self.root / "wheels" / "a.whl", names)
        return run_python("unpack_libtorch.py", self.root / "wheels", self.root / "out", *flags)

    def kept(self):
        return {str(path.relative_to(self.root / "out")) for path in (self.root / "out").rglob("*") if path.is_file()}

    def test_keeps_what_cpp_needs_and_nothing_else(self):
        self.assertEqual(self.unpack(self.NAMES + self.CUDA_NAMES), (0, ""))
        self.assertEqual(self.kept(), set(self.NAMES) - {"torch/lib/libgomp.so.1", "torch/nn/functional.py"})
        self.assertFalse(list((self.root / "wheels").iterdir()))

    def test_keeps_the_cuda_libraries_when_asked(self):
        self.assertEqual(self.unpack(self.NAMES + self.CUDA_NAMES, "--cuda"), (0, ""))
        self.assertLess(set(self.CUDA_NAMES), self.kept())

    def test_refuses_a_wheel_without_cuda_when_cuda_is_asked_for(self):
        code, output = self.unpack(self.NAMES, "--cuda")
        self.assertEqual(code, 1)
        self.assertIn("libtorch_cuda.so is in none of the wheels", output)

    def test_refuses_a_wheel_that_lacks_a_library(self):
        code, output = self.unpack(self.NAMES[:3])
        self.assertEqual(code, 1)
        self.assertIn("libc10.so is in none of the wheels", output)


class UnpackCuda(ScriptTest):
    NAMES = ["nvidia/cu13/bin/nvcc", "nvidia/cu13/nvvm/bin/cicc", "nvidia/cu13/include/cuda_runtime_api.h",
             "nvidia/cu13/include/cupti.h", "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcudadevrt.a", "x.dist-info/METADATA"]

    def unpack(self, names, *options):
        self.root.joinpath("wheels").mkdir()
        write_wheel(self.root / "wheels" / "a.whl", names)
        return run_python("unpack_cuda.py", *options, self.root / "wheels", self.root / "out")

    def test_makes_a_toolkit_that_can_be_run(self):
        self.assertEqual(self.unpack(self.NAMES), (0, ""))
        out = self.root / "out"
        for program in ("bin/nvcc", "nvvm/bin/cicc"):
            self.assertTrue(os.access(out / program, os.X_OK), program)
        self.assertEqual((out / "lib64/libcudart.so").read_text(), "x")
        self.assertFalse((out / "x.dist-info").exists())

    def test_takes_a_single_library_as_it_is(self):
        self.assertEqual(self.unpack(["nvidia/cu13/include/nvjpeg.h", "nvidia/cu13/lib/libnvjpeg.so.13"], "--part"), (0, ""))
        self.assertTrue((self.root / "out/include/nvjpeg.h").exists())

    def test_refuses_wheels_that_lack_a_part(self):
        code, output = self.unpack(self.NAMES[:5])
        self.assertEqual(code, 1)
        self.assertIn("libcudadevrt.a is in none of the wheels", output)


class GpuCheck(ScriptTest):
    """scripts/gpu_check with a machine, programs and peers that only pretend."""

    PYTHON = """import json, sys
if sys.argv[1] == "-c":
    sys.exit(print(json.dumps({"torch": "2.11.0", "folder": "/nowhere"})))
print(json.dumps({"images_per_sec": 50 if sys.argv[-2] == "eager" else 80}), flush=True)
print("UserWarning: of what a library does at the end", file=sys.stderr)
"""
    PROGRAM = """import sys, time
mode = open(sys.argv[0] + ".mode").read()
time.sleep(60 if "--slow" in mode else 0)
if "silent" in mode:
    sys.exit()
speeds = {"--dali_mode=GPU": 116.0, "--nodistortions": 100.0, "--xla_compile": 120.5}
print(f"total images/sec: {next((speed for flag, speed in speeds.items() if flag in sys.argv), 90.0)}")
"""
    TESTS = """import json, sys
output = [word.split(":", 1)[1] for word in sys.argv if word.startswith("--gtest_output=json:")][0]
failed = "failed" in open(sys.argv[0] + ".mode").read()
cases = [{"classname": "Cuda", "name": "a", "result": "COMPLETED", **({"failures": [{"failure": "of a == 1"}]} if failed else {})},
         {"classname": "Cuda", "name": "b", "result": "SKIPPED"}]
if "without_gpu" in open(sys.argv[0] + ".mode").read():
    cases = cases[1:]
open(output, "w").write(json.dumps({"testsuites": [{"testsuite": cases}]}))
sys.exit(1 if failed else 0)
"""

    def program(self, name, text, mode=""):
        self.write(name, f"#!{sys.executable}\n{text}").chmod(0o755)
        self.write(name + ".mode", mode)

    def check(self, *arguments, program="", tests="", smi="print('NVIDIA H200, 580.1, 143771 MiB, 9.0')\n"):
        self.program("path/python3", self.PYTHON)
        self.program("path/nvidia-smi", smi)
        self.program("build/trainyard", self.PROGRAM, program)
        for name in ("trainyard_data_test", "trainyard_nn_test", "trainyard_optim_test", "trainyard_parallel_test"):
            self.program(f"build/{name}", self.TESTS, tests)
        done = subprocess.run([sys.executable, SCRIPTS / "gpu_check", f"--build={self.root}/build", f"--output={self.root}/report.json",
                               *arguments], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.root}/path:{os.environ['PATH']}"})
        return done.returncode, done.stdout + done.stderr, json.loads((self.root / "report.json").read_text())

    def test_runs_tests_and_rows_and_writes_a_report(self):
        code, output, report = self.check("--rows=resnet50-fp16")
        self.assertEqual(code, 0, output)
        self.assertTrue(report["complete"])
        self.assertEqual(report["device"]["name"], "NVIDIA H200")
        self.assertEqual(report["tests"]["trainyard_nn_test"], {"run": 4, "failed": [], "skipped": ["Cuda.b"] * 4, "messages": {}})
        self.assertIn("resnet50-fp16: torch.compile, beforehand", [step["step"] for step in report["steps"]])
        row = report["rows"][0]
        self.assertEqual(row["images_per_sec"], {"ours, captured": 120.5, "torch.compile, CUDA graphs": 80, "ours": 90.0, "torch, eager": 50})
        self.assertEqual(row["ratio"], 1.506)

    def test_runs_the_sides_that_are_asked_for(self):
        code, output, report = self.check("--rows=resnet50-fp16", "--sides=ours,eager")
        self.assertEqual(code, 0, output)
        self.assertEqual(report["rows"][0]["images_per_sec"], {"ours": 90.0, "torch, eager": 50})
        self.assertEqual(report["rows"][0]["ratio"], 1.8)
        self.assertNotIn("resnet50-fp16: torch.compile, beforehand", [step["step"] for step in report["steps"]])

    def test_the_row_of_jpegs_compares_both_decoders_with_synthetic_images(self):
        code, output, report = self.check("--rows=resnet50-jpegs-fp16", f"--images={self.root}")
        self.assertEqual(code, 0, output)
        row = report["rows"][0]
        self.assertEqual(row["images_per_sec"], {"synthetic": 120.5, "JPEGs, GPU": 116.0, "JPEGs, CPU": 100.0})
        self.assertEqual(row["ratio"], 0.963)

    def test_stops_what_hangs_and_says_what_was_not_run(self):
        code, _, report = self.check("--rows=resnet50-fp16", "--seconds=4", program="--slow")
        self.assertEqual(code, 1)
        self.assertFalse(report["complete"])
        errors = [step["error"] for step in report["steps"] if step["error"]]
        self.assertIn("still running after", errors[0])
        self.assertEqual(errors[-1], "not run: no time was left")
        self.assertIsNone(report["rows"][0]["ratio"])

    def test_a_test_that_fails_fails_the_check(self):
        code, _, report = self.check("--rows=", tests="failed")
        self.assertEqual(code, 1)
        self.assertEqual(report["tests"]["trainyard_optim_test"]["failed"], ["Cuda.a"])
        self.assertEqual(report["tests"]["trainyard_optim_test"]["messages"], {"Cuda.a": "of a == 1"})

    def test_tests_that_all_skip_fail_the_check(self):
        code, output, report = self.check("--rows=", tests="without_gpu")
        self.assertEqual(code, 1, output)
        self.assertEqual(report["tests"]["trainyard_optim_test"]["run"], 0)

    def test_a_side_without_a_figure_fails_the_check(self):
        code, _, report = self.check("--rows=resnet50-fp16", "--sides=ours", program="silent")
        self.assertEqual(code, 1)
        self.assertEqual(report["steps"][-1]["error"], "printed no images/sec")
        self.assertEqual(report["rows"][0]["images_per_sec"], {"ours": None})

    def test_a_machine_without_a_gpu_is_told(self):
        code, output, report = self.check(smi="raise SystemExit('no devices were found')\n")
        self.assertEqual(code, 1)
        self.assertIn("needs a GPU", output)
        self.assertEqual(report["steps"][0]["said"], ["no devices were found"])

    def test_packs_programs_with_the_libraries_they_need(self):
        for name in ("trainyard", "trainyard_data_test", "trainyard_nn_test", "trainyard_optim_test", "trainyard_parallel_test",
                     "libtrainyard.so.0.1"):
            self.write(f"built/{name}", "")
            shutil.copy2("/bin/true", self.root / "built" / name)
        archive = self.root / "packed" / "gpu.tar.xz"
        done = subprocess.run([sys.executable, SCRIPTS / "gpu_check", f"--pack={archive}", f"--build={self.root}/built"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with tarfile.open(archive) as packed:
            self.assertLessEqual({"trainyard", "trainyard_nn_test", "libtrainyard.so.0.1", "libraries"}, set(packed.getnames()))
        (self.root / "built/trainyard").unlink()
        done = subprocess.run([sys.executable, SCRIPTS / "gpu_check", f"--pack={archive}", f"--build={self.root}/built"],
                              capture_output=True, text=True)
        self.assertIn("lacks trainyard", done.stdout + done.stderr)


class TranslateKernels(ScriptTest):
    def translated(self, text):
        source = self.write("kernel.cu", text)
        done = subprocess.run([sys.executable, SCRIPTS.parent / "tests/cuda_emulation/translate.py", source, self.root / "out/kernel.cpp"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return " ".join((self.root / "out/kernel.cpp").read_text().split())

    def test_launches_become_calls_with_their_arguments(self):
        text = self.translated("void f() {\n  g();\n  kernel<T, size(v)>\n      <<<blocks(n), 256, 0, s>>>(a, b(c, d)); after();\n}\n")
        self.assertIn("g(); cuda_emulation::launch({blocks(n), 256, 0, s}, [&] { kernel<T, size(v)>(a, b(c, d)); }); after();", text)

    def test_dynamic_shared_memory_becomes_a_pointer(self):
        self.assertIn("float* const shared = static_cast<float*>(cuda_emulation::dynamic_shared());",
                      self.translated("extern __shared__ float shared[];  // as the launch says\n"))


if __name__ == "__main__":
    unittest.main()
