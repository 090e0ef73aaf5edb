"""Tests of scripts/mutate and scripts/mutate_room on a small project with planted gaps in its tests, and of their rules.

usage: mutate_test.py [-v]       run by CTest; needs Python, CMake, Ninja, a compiler and GoogleTest
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import mutation_rules  # noqa: E402
import mutation_switches  # noqa: E402

CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
find_package(GTest REQUIRED)
include_directories(${CMAKE_SOURCE_DIR})
add_library(trainyard_core OBJECT trainyard/core/base/limits.cpp trainyard/core/base/user.cpp)
set_target_properties(trainyard_core PROPERTIES UNITY_BUILD ON)
add_executable(trainyard_core_test trainyard/core/base/limits_test.cpp trainyard/core/base/user_test.cpp trainyard/core/far/far_test.cpp)
target_link_libraries(trainyard_core_test PRIVATE trainyard_core GTest::gtest GTest::gtest_main)
"""
LIMITS_H = """#pragma once
namespace small {
bool inside(int value, int limit);
bool enough(int value, int limit);
int count_down(int from);
}
"""
LIMITS = """#include "trainyard/core/base/limits.h"

namespace small {
namespace {
int one() { return 1; }
}  // namespace

bool inside(int value, int limit) {
  return value < limit;
}

bool enough(int value, int limit) {
  return value >= limit;  // tested far from its edge only
}

int count_down(int from) {
  int steps = 0;
  while (from > 0) {
    from -= one();
    ++steps;
  }
  return steps;
}

int doubled(int value) { return 2 * value; }
}  // namespace small
"""
USER = """#include "trainyard/core/base/limits.h"

namespace small {
int user(int value) {
  return inside(value, 10) ? 1 : 0;
}
}  // namespace small
"""
LIMITS_TEST = """#include "trainyard/core/base/limits.h"

#include <gtest/gtest.h>

TEST(Limits, Inside) {
  EXPECT_TRUE(small::inside(4, 5));
  EXPECT_FALSE(small::inside(5, 5));
}
TEST(Limits, Enough) {
  EXPECT_TRUE(small::enough(9, 5));
  EXPECT_FALSE(small::enough(1, 5));
}
TEST(Limits, CountsDown) { EXPECT_EQ(small::count_down(3), 3); }
TEST(Limits, FailsAnyway) { EXPECT_EQ(1, 2); }
"""
USER_TEST = """#include <gtest/gtest.h>

namespace small {
int user(int value);
}
TEST(User, Uses) { EXPECT_EQ(small::user(9), 1); }
"""
FAR_TEST = """#include <gtest/gtest.h>

namespace small {
int doubled(int value);
}
TEST(Far, Doubles) { EXPECT_EQ(small::doubled(4), 8); }
"""


def make_project(test_class, limits=LIMITS):
    """A configured project of one room in a folder that is removed behind the class's tests."""
    folder = tempfile.TemporaryDirectory()
    test_class.addClassCleanup(folder.cleanup)
    root = pathlib.Path(folder.name).resolve()
    base = root / "trainyard/core/base"
    base.mkdir(parents=True)
    (root / "tests").mkdir()
    (base.parent / "far").mkdir()
    (root / "CMakeLists.txt").write_text(CMAKE)
    for name, text in (("limits.h", LIMITS_H), ("limits.cpp", limits), ("user.cpp", USER), ("limits_test.cpp", LIMITS_TEST),
                       ("user_test.cpp", USER_TEST), ("../far/far_test.cpp", FAR_TEST)):
        (base / name).write_text(text)
    subprocess.run(["cmake", "-G", "Ninja", "-S", root, "-B", root / "build"], check=True, capture_output=True)
    return root


class Rules(unittest.TestCase):
    def changed(self, text, rule):
        """What the lines with a mistake of this rule become."""
        return {mutant.lines(text)[1] for mutant in mutation_rules.mutants(text) if mutant.rule == rule}

    def test_each_makes_its_mistakes(self):
        function = "void f() {\n  %s\n}\n"
        for rule, line, expected in (
                ("edge", "if (a < b) g();", {"if (a <= b) g();"}),
                ("comparison", "x = a == b && !c;", {"x = a != b && !c;", "x = a == b || !c;", "x = a == b && c;"}),
                ("sign", "x = a - b * c;", {"x = a + b * c;", "x = a - b / c;"}),
                ("sign", "return -a;", {"return a;"}),
                ("condition", "if (a && b) g();", {"if (true) g();", "if (false) g();", "if (a) g();"}),
                ("index", "x = a[i];", {"x = a[i + 1];", "x = a[i - 1];"}),
                ("index", "x = std::min(a, n - 1);", {"x = std::max(a, n - 1);", "x = std::min(a, n);"}),
                ("constant", "x = 0.5 + 1;", {"x = 1.0 + 1;", "x = 0.5 + 2;", "x = 0.5 + 0;"}),
                ("constant", "return true;", {"return false;"}),
                ("argument", "g(a.b, c);", {"g(c, a.b);"}),
                ("call", "file->sync();", {";"}),
                ("call", "if (a) files_->remove_tree(path);", {"if (a) ;"}),
                ("assignment", "bytes_ += size;", {";"}),
                ("jump", "if (a) continue;", {"if (a) break;"})):
            with self.subTest(line):
                self.assertEqual(self.changed(function % line, rule), expected)

    def test_leave_alone_what_does_nothing(self):
        for text in ('// a < b\n', '/* a < b\n a == b */\n', '#if A < B\n#endif\n', 'const char* a = "a < b";\n',
                     'static_assert(sizeof(a) == 8);\n', 'void f() {\n  core::log::info("{}", a - b);\n}\n',
                     'void f() {\n  int a(b);\n}\n', 'std::vector<int> a;\n'):
            with self.subTest(text):
                self.assertEqual([mutant.apply(text) for mutant in mutation_rules.mutants(text)], [])

    def test_logging_is_no_mistake_to_find(self):
        self.assertEqual(self.changed('void f() {\n  log::info("x");\n  a.reserve(8);\n}\n', "call"), set())

    def test_a_statement_ends_at_its_own_semicolon(self):
        for line, expected in (("f([] { g(); });", {";", "f([] { ; });"}),  # the call around, and the one within
                               ("if (a) { f(b); } else { g({1, 2}); }", {"if (a) { ; } else { g({1, 2}); }", "if (a) { f(b); } else { ; }"}),
                               ("for (int i = 0; i < n; ++i) f(i);", {"for (int i = 0; i < n; ++i) ;"})):
            with self.subTest(line):
                self.assertEqual(self.changed("void h() {\n  %s\n}\n" % line, "call"), expected)
        self.assertEqual(self.changed("} f(); ) g();", "call"), {"} ; ) g();"}, "brackets that nothing opened end the statement")

    def test_what_the_tree_lists_as_equivalent_is_still_there(self):
        self.assertGreater(len(mutation_rules.read_equivalent(ROOT)), 0)

    def test_a_draw_is_repeated_by_its_seed_and_takes_each_line_once_first(self):
        texts = {"a.cpp": "void f() {\n  x = a < b && c < d;\n  y = a + b;\n}\n"}
        first = list(mutation_rules.draw(texts, 7))
        self.assertEqual(first, list(mutation_rules.draw(texts, 7)))
        self.assertEqual({mutant.line(texts["a.cpp"]) for _, mutant in first[:2]}, {2, 3})
        self.assertEqual(len(first), len(mutation_rules.mutants(texts["a.cpp"])))
        only = [mutant for _, mutant in mutation_rules.draw(texts, 7, {"a.cpp": {3}})]
        self.assertEqual({mutant.line(texts["a.cpp"]) for mutant in only}, {3})


class Mutate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = make_project(cls)
        cls.file = cls.root / "trainyard/core/base/limits.cpp"

    def setUp(self):
        self.before = self.file.read_bytes(), self.file.stat().st_mtime_ns
        self.addCleanup(lambda: (self.root / "tests/equivalent_mutants.tsv").unlink(missing_ok=True))

    def tearDown(self):
        self.assertEqual((self.file.read_bytes(), self.file.stat().st_mtime_ns), self.before, "the file was touched")
        left = [path for path in (self.root / "build/mutants").rglob("*") if path.is_file()]
        self.assertEqual(left, [], "copies were left")

    def command(self, *arguments):
        return [sys.executable, ROOT / "scripts/mutate", f"--root={self.root}", *map(str, arguments)]

    def mutate(self, *arguments):
        done = subprocess.run(self.command(*arguments), cwd=self.root, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def replace(self, old, new, *more):
        return self.mutate(self.file, "--replace", old, new, *more)

    def test_a_planted_mistake_is_killed(self):
        code, output = self.replace("value < limit", "value <= limit")
        self.assertEqual(code, 0, output)
        self.assertIn("killed: trainyard/core/base/limits.cpp:9: own (Limits.Inside fails)", output)
        self.assertIn("1 killed, 0 survived", output)

    def test_a_planted_survivor_is_listed(self):
        code, output = self.replace("value >= limit", "value > limit")
        self.assertEqual(code, 1, output)
        self.assertIn("survived: trainyard/core/base/limits.cpp:13", output)
        self.assertIn("+ return value > limit;", output)

    def test_several_planted_mistakes_are_made_one_after_the_other(self):
        code, output = self.replace("value < limit", "value <= limit", "--replace", "value >= limit", "value > limit")
        self.assertEqual(code, 1, output)
        self.assertIn("1 killed, 1 survived", output)

    @unittest.skipUnless(os.path.exists("/proc/self/autogroup"), "this kernel does not share processors between sessions")
    def test_compilers_and_tests_keep_the_low_priority_of_the_session(self):
        log = self.root / "priority.txt"
        self.addCleanup(lambda: log.unlink(missing_ok=True))
        low = "import os, pathlib, sys; os.setsid(); pathlib.Path('/proc/self/autogroup').write_text('15'); os.execv(sys.argv[1], sys.argv[1:])"
        old = "bool inside(int value, int limit) {"
        new = f'extern "C" int system(const char*);\n{old} system("cat /proc/self/autogroup > {log}");'
        subprocess.run([sys.executable, "-c", low, *map(str, self.command(self.file, "--replace", old, new))], cwd=self.root,
                       capture_output=True)
        self.assertTrue(log.read_text().endswith(" nice 15\n"), log.read_text())

    def test_sources_compiled_together_see_the_mistake(self):
        code, output = self.replace("return value < limit;", "return limit == 10 ? false : value < limit;")
        self.assertEqual(code, 0, output)
        self.assertIn("(User.Uses fails)", output)

    def test_the_rest_of_the_room_is_asked_last_and_not_in_a_quick_look(self):
        code, output = self.replace("2 * value", "3 * value")
        self.assertEqual(code, 0, output)
        self.assertIn("(Far.Doubles fails)", output)
        self.assertEqual(self.replace("2 * value", "3 * value", "--quick")[0], 1)

    def test_a_list_names_the_tests_that_are_asked(self):
        names = self.root / "list.txt"
        names.write_text("core Far  # 0.01 s\ncore Limits.Inside\n")
        for old, new, test in (("2 * value", "3 * value", "(Far.Doubles fails)"), ("value < limit", "value <= limit", "(Limits.Inside fails)"),
                               ("from > 0", "from >= 0", None)):  # Limits.CountsDown would find it
            code, output = self.replace(old, new, f"--list={names}")
            self.assertEqual(code, 0 if test else 1, output)
            self.assertIn(test or "0 killed, 1 survived", output)

    def test_mistakes_of_a_record_are_made_again(self):
        record = self.root / "record.tsv"
        file = "trainyard/core/base/limits.cpp"
        rows = [("7", file, "edge", "return value < limit;", "return value <= limit;", "Limits.Inside"),
                ("7", file, "edge", "return value < gone;", "return value <= gone;", "Limits.Inside"),
                ("7", "trainyard/core/base/gone.cpp", "edge", "a < b", "a <= b", ""),
                ("by hand", file, "described", "it is forgotten", "", "Limits.Inside")]
        record.write_text("# draw, ...\n" + "".join("\t".join(row) + "\n" for row in rows))
        code, output = self.mutate(f"--again={record}")
        self.assertEqual(code, 0, output)
        self.assertIn("1 killed, 0 survived", output)

    def test_no_mistake_is_counted_that_is_none(self):
        for new, why in (("value + 0 < limit", "1 that the compiler makes the same code of"), ("value <", "1 that do not compile")):
            code, output = self.replace("value < limit", new)
            self.assertEqual(code, 0, output)
            self.assertIn(why, output)
            self.assertIn("0 killed, 0 survived", output)

    def test_a_compilation_that_takes_too_long_is_not_one_that_fails(self):
        pipe, log = self.root / "pipe.h", self.root / "timeout.jsonl"
        os.mkfifo(pipe)  # nobody writes into it, so that the compiler waits
        self.addCleanup(pipe.unlink)
        arguments = ["return value < limit;", f'\n#include "{pipe}"\n', "--compiler-timeout=5", f"--log={log}"]
        for _ in range(2):  # the log's entry does not keep it from being made again
            code, output = self.replace(*arguments)
            self.assertEqual(code, 0, output)
            self.assertIn("0 that do not compile, 1 whose compilation took too long", output)
        self.assertEqual([json.loads(line)["state"] for line in log.read_text().splitlines()], ["compiler timed out"] * 2)

    def test_what_hangs_is_killed(self):
        code, output = self.replace("from -= one();", "from += 0 * one();", "--timeout=3")
        self.assertEqual(code, 0, output)
        self.assertIn("(Limits.CountsDown hangs)", output)

    def test_equivalent_ones_are_kept_with_why(self):
        kept = self.root / "tests/equivalent_mutants.tsv"
        line = "return value >= limit; // tested far from its edge only"
        columns = ["trainyard/core/base/limits.cpp", line, line.replace(">=", ">"), "nobody asks for the edge"]
        kept.write_text("# file, line, line with the mistake, why\n" + "\t".join(columns) + "\n")
        code, output = self.replace("value >= limit", "value > limit")
        self.assertEqual(code, 0, output)
        self.assertIn("1 listed as equivalent", output)
        kept.write_text("\t".join(columns[:3] + [""]) + "\n")
        self.assertEqual(self.replace("value >= limit", "value > limit")[0], 2, "without a reason")
        kept.write_text("\t".join([columns[0], "return value;"] + columns[2:]) + "\n")
        code, output = self.replace("value >= limit", "value > limit")
        self.assertEqual(code, 2, "a line that is gone")
        self.assertIn("equivalent_mutants.tsv:1", output)

    def test_a_sample_finds_what_was_planted_and_is_not_made_twice(self):
        log = self.root / "log.jsonl"
        code, output = self.mutate("--sample=40", "--seed=3", "--timeout=3", f"--log={log}", self.root / "trainyard")
        self.assertEqual(code, 1, output)
        self.assertIn("limits.cpp:13: edge", output)
        self.assertNotIn("limits.cpp:9: edge\n", output)
        entries = log.read_text().count("\n")
        texts = {str(path.relative_to(self.root)): path.read_text() for path in (self.root / "trainyard").rglob("*.cpp") if "_test" not in path.name}
        drawn = [(file, mutant.line(texts[file]), mutant.lines(texts[file])[1]) for file, mutant in mutation_rules.draw(texts, 3)]
        made = [(entry["file"], entry["line"], entry["new"]) for entry in map(json.loads, log.read_text().splitlines())]
        self.assertEqual(sorted(made[:10]), sorted(drawn[:10]), "an interrupted draw is a smaller one")
        start = time.monotonic()
        self.assertEqual(self.mutate("--sample=40", "--seed=3", "--timeout=3", f"--log={log}", self.root / "trainyard")[0], 1)
        again = log.read_text().count("\n") - entries
        self.assertEqual(again, output.count("survived: "), "only survivors are made again")
        self.assertLess(time.monotonic() - start, 120)

    def test_an_interrupted_run_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run = subprocess.Popen(self.command(self.file, "--replace", "from -= one();", "from += 0 * one();"), cwd=self.root,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            deadline = time.monotonic() + 60
            program = None
            while program is None and time.monotonic() < deadline:
                program = next((self.root / "build/mutants").glob("*/worker*/core_mutant"), None)
                time.sleep(0.05)
            time.sleep(0.5)  # into the test that hangs
            run.send_signal(number)
            output, _ = run.communicate(timeout=30)
            self.assertEqual(run.returncode, 130, output)
            self.assertEqual(self.running(), [], "a test program goes on")

    def test_an_interrupted_compilation_is_not_one_that_fails(self):
        pipe, log = self.root / "pipe.h", self.root / "interrupted.jsonl"
        os.mkfifo(pipe)  # nobody writes into it, so that the compiler waits
        self.addCleanup(pipe.unlink)
        run = subprocess.Popen(self.command(self.file, "--replace", "return value < limit;", f'\n#include "{pipe}"\n', f"--log={log}"),
                               cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        deadline = time.monotonic() + 60
        while not any("cc1plus" in words for words in self.running()) and time.monotonic() < deadline:
            time.sleep(0.05)
        run.terminate()
        output, _ = run.communicate(timeout=30)
        self.assertEqual(run.returncode, 130, output)
        self.assertEqual(log.read_text() if log.exists() else "", "", "the next run with this log leaves it out")

    def running(self):
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(self.root / "build/mutants") in words and process.name != str(os.getpid()):
                found.append(words)
        return found

    def test_refuses_what_it_cannot_mutate(self):
        for name in ("trainyard/core/base/limits_test.cpp", "trainyard/core/base/limits.h", "CMakeLists.txt", "nothing.cpp"):
            self.assertEqual(self.mutate(self.root / name)[0], 2, name)


class Switches(unittest.TestCase):
    def units(self, line):
        """What is written twice for each mutant of a line, with the kind of each."""
        text = "void f() {\n  %s\n}\n" % line
        source = mutation_switches.Source(text)
        found = [source.unit(mutant) for mutant in mutation_rules.mutants(text)]
        return {(text[unit.start:unit.end], unit.kind) for unit in found if unit}

    def test_the_innermost_part_that_may_be_written_twice_is_wrapped(self):
        for line, expected in (
                ("x = a + b;", {("x = a + b;", "statement")}),
                ("const auto x = a + b;", {("a + b", "value")}),
                ("return a < b;", {("return a < b;", "leaving")}),
                ("if (a < b) c = d * e;", {("a < b", "condition"), ("c = d * e;", "statement")}),
                ("if (const auto x = g(a - b); x < c) return;", {("g(a - b)", "value"), ("x < c", "condition")}),
                ("for (int i = a - b; i < n; i += 2) {}", {("a - b", "value"), ("i < n", "condition"), ("i += 2", "effect")}),
                ("for (int i : g(a - b)) {}", {("g(a - b)", "value")}),
                ("Thing thing(a + b, c);", {("a + b", "value")}),
                ("call([&] { return a < b; });", {("call([&] { return a < b; });", "statement"), ("return a < b;", "leaving")}),
                ("x = {.first = 1, .second = a - b};", {("x = {.first = 1, .second = a - b};", "statement")}),
                ("const Thing thing{.first = a - b};", {("a - b", "value")})):
            with self.subTest(line):
                self.assertEqual(self.units(line), expected)

    def test_an_error_of_the_compiler_is_blamed_on_the_mutants_of_its_line(self):
        text = "int f(int a) {\n  return a + 1;\n}\n"
        numbered = list(enumerate(mutation_rules.mutants(text), 1))
        switched = mutation_switches.Switched(text, numbered)
        for number, _ in numbered:
            line = next(at for at, numbers in enumerate(switched.lines, 1) if numbers == {number})
            self.assertEqual(switched.blamed("f.cpp", f"f.cpp:{line}:7: error: no match"), {number})
        self.assertEqual(switched.blamed("f.cpp", "g.cpp:1:1: error: no match"), set())


class MutateRoom(unittest.TestCase):
    UNREACHED = "int never(int value) {\n  return value + 1;\n}\n}  // namespace small\n"

    @classmethod
    def setUpClass(cls):
        cls.root = make_project(cls, LIMITS.replace("}  // namespace small\n", cls.UNREACHED))

    def mutate_room(self, *arguments):
        command = [sys.executable, ROOT / "scripts/mutate_room", f"--root={self.root}", "--jobs=2", *map(str, arguments)]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        self.assertEqual([path for path in (self.root / "build/mutants").rglob("*") if path.is_file()], [], "files were left")
        return done.returncode, done.stdout + done.stderr

    def test_each_line_has_a_mistake_and_what_new_tests_find_is_seen(self):
        log = self.root / "log.jsonl"
        code, output = self.mutate_room("core", f"--log={log}")
        self.assertEqual(code, 1, output)
        self.assertIn("left out: Limits.FailsAnyway", output)
        entries = {(pathlib.Path(entry["file"]).name, entry["line"]): entry for entry in map(json.loads, log.read_text().splitlines())}
        self.assertEqual(sorted(entries), [("limits.cpp", line) for line in (5, 9, 13, 17, 18, 19, 20, 25, 27)] + [("user.cpp", 5)], output)
        states = {key: (entry["state"], entry["test"]) for key, entry in entries.items()}
        self.assertEqual(states["limits.cpp", 13], ("survived", ""))
        self.assertEqual(states["limits.cpp", 27], ("unreached", ""))
        self.assertEqual(states["limits.cpp", 25], ("killed", "Far.Doubles"))
        self.assertEqual(states["limits.cpp", 9][0], "killed")
        self.assertEqual(states["limits.cpp", 20], ("killed", "Limits.CountsDown"))

        test = self.root / "trainyard/core/base/limits_test.cpp"
        test.write_text(LIMITS_TEST.replace("EXPECT_TRUE(small::enough(9, 5));", "EXPECT_TRUE(small::enough(5, 5));"))
        self.addCleanup(lambda: test.write_text(LIMITS_TEST))
        code, output = self.mutate_room("core", f"--again={log}")
        self.assertEqual(code, 1, output)
        self.assertIn("1 killed, 1 survived, 1 unreached; 0 not made in the time", output)

    def test_what_a_log_holds_is_not_made_again(self):
        log = self.root / "short.jsonl"
        code, output = self.mutate_room("core", "--minutes=0", f"--log={log}")
        self.assertIn("0 killed, 0 survived, 1 unreached; 9 not made in the time", output)
        code, output = self.mutate_room("core", f"--log={log}")
        self.assertIn(", 0 unreached; 0 not made in the time", output)
        code, output = self.mutate_room("core", f"--log={log}")
        self.assertEqual(code, 2, output)
        self.assertIn("no mistake is left to make in trainyard/core", output)

    def test_tests_that_crash_without_a_mistake_say_nothing_of_what_they_reach(self):
        test, log = self.root / "trainyard/core/base/limits_test.cpp", self.root / "crash.jsonl"
        test.write_text(LIMITS_TEST + "TEST(Limits, Crashes) { __builtin_abort(); }\n")
        self.addCleanup(lambda: test.write_text(LIMITS_TEST))
        code, output = self.mutate_room("core", f"--log={log}")
        self.assertEqual(code, 2, output)
        self.assertIn("without a mistake Limits.Crashes ends with -6", output)
        self.assertEqual(log.read_text(), "")

    def test_refuses_what_it_cannot_make(self):
        for arguments, expected in ((["nowhere"], "name a room"), (["core", "--jobs=0"], "one job or more"),
                                    (["core", "--again=gone.jsonl"], "gone.jsonl is no file"),
                                    (["core", "../elsewhere"], "../elsewhere is no folder of trainyard/"),
                                    (["core", f"--log={self.root}/gone/log.jsonl"], "cannot write")):
            code, output = self.mutate_room(*arguments)
            self.assertEqual(code, 2, output)
            self.assertIn(expected, output)


if __name__ == "__main__":
    unittest.main()
