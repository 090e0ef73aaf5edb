"""Tests of the checks in scripts/: each one passes on a good tree and fails on the mistake it is there for.

usage: scripts_test.py [-v]       run by CTest; needs Python alone
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"


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

    def test_refuses_a_front_end_that_wires_a_run_by_itself(self):
        self.write("CMakeLists.txt", "set(TRAINYARD_ROOMS core nn models train frontends)\n")
        self.write("trainyard/train/CMakeLists.txt", "trainyard_room(\n  NAME train\n  SUBROOMS session fit\n  DEPENDS core)\n")
        self.write("trainyard/frontends/CMakeLists.txt",
                   "trainyard_room(\n  NAME frontends\n  SUBROOMS paddle\n  DEPENDS core train)\n")
        self.write("trainyard/train/session/a.cpp", "RunLock lock; RankAgreement agreement; CheckpointCallback saving;\n")
        self.write("trainyard/frontends/paddle/a_test.cpp", "trainer.add(std::make_shared<train::CheckpointCallback>());\n")
        self.assertEqual(self.check(), (0, ""))
        for part in ("CheckpointCallback", "RankAgreement", "RunLock", "load_shared"):
            for file in ("frontends/paddle/a.cpp", "frontends/paddle/a.h", "train/fit/a.cpp"):
                self.write(f"trainyard/{file}", f"\ntrain::{part} part;\n")
                code, output = self.check()
                self.assertEqual(code, 1)
                self.assertIn(f"{file}:2: {part} is train::TrainingSession's", output)
                (self.root / "trainyard" / file).unlink()

    def test_refuses_a_folder_that_is_no_room(self):
        self.write("trainyard/attic/a.cpp", "")
        self.assertEqual(self.check()[0], 1)

    def with_sub_rooms(self):
        self.write("trainyard/core/CMakeLists.txt", "trainyard_room(\n  NAME core\n  SUBROOMS base files files/local\n)\n")
        self.write("trainyard/core/base/a.h", "")
        self.write("trainyard/core/files/a.h", '#include "trainyard/core/base/a.h"\n')
        self.write("trainyard/core/files/local/a.h", '#include "trainyard/core/files/a.h"\n')
        self.write("trainyard/core/flags.h", '#include "trainyard/core/files/a.h"\n')
        self.write("trainyard/core/base/a_test.cpp", '#include "trainyard/core/files/a.h"\n')
        self.write("trainyard/core/testing/fake.h", '#include "trainyard/core/files/a.h"\n')

    def test_accepts_sub_rooms_in_their_order(self):
        self.with_sub_rooms()
        self.assertEqual(self.check(), (0, ""))

    def test_refuses_an_arrow_back_up_between_sub_rooms(self):
        for user, used in (("base", "files"), ("files", "files/local")):
            self.with_sub_rooms()
            self.write(f"trainyard/core/{user}/a.h", f'#include "trainyard/core/{used}/a.h"\n')
            code, output = self.check()
            self.assertEqual(code, 1)
            self.assertIn(f"sub-room {user} includes trainyard/core/{used}/a.h, but stands before {used}", output)

    def test_refuses_what_belongs_to_the_whole_room_in_a_sub_room(self):
        self.with_sub_rooms()
        self.write("trainyard/core/files/b.h", '#include "trainyard/core/flags.h"\n')
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn("sub-room files includes trainyard/core/flags.h of the whole room", output)

    def test_refuses_a_folder_that_is_no_sub_room(self):
        self.with_sub_rooms()
        self.write("trainyard/core/attic/a.h", "")
        self.assertEqual(self.check()[0], 1)

    def test_refuses_a_test_helper_in_what_is_shipped(self):
        self.with_sub_rooms()
        self.write("trainyard/core/files/b.cpp", '#include "trainyard/core/testing/fake.h"\n')
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn("trainyard/core/testing/fake.h is for tests only", output)

    def with_public_headers(self, *headers):
        self.write("cmake/PublicHeaders.cmake", "set(TRAINYARD_PUBLIC_HEADERS\n  " + "\n  ".join(headers) + ")\n")
        for header in headers:
            self.write(header, '#include "trainyard/version.h"\nTRAINYARD_EXPORT_BEGIN\nnamespace trainyard {}\nTRAINYARD_EXPORT_END\n')

    def test_refuses_a_public_header_that_hides_what_it_declares(self):
        self.with_public_headers("trainyard/core/a.h", "trainyard/nn/a.h")
        self.assertEqual(self.check(), (0, ""))
        self.write("trainyard/core/a.h", "namespace trainyard::core {}\n")
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn("core/a.h:1: a public header", output)

    def test_refuses_a_private_header_that_exports(self):
        self.with_public_headers("trainyard/core/a.h")
        self.write("trainyard/nn/a.h", "namespace trainyard::nn {}\n")
        self.assertEqual(self.check(), (0, ""))
        self.write("trainyard/nn/a.h", "#pragma once\nTRAINYARD_EXPORT_BEGIN\nnamespace trainyard::nn {}\nTRAINYARD_EXPORT_END\n")
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn("nn/a.h:2: a private file exports what it declares", output)

    def test_refuses_a_private_type_that_a_public_header_declares_as_shown(self):
        self.with_public_headers("trainyard/core/a.h", "trainyard/nn/a.h")
        self.write("trainyard/nn/a.h", "TRAINYARD_EXPORT_BEGIN\nnamespace trainyard {\nclass Clock {\n};\n}\nTRAINYARD_EXPORT_END\n")
        for text, code in (("class Clock;\n", 0), ("class Hidden;\n", 1)):
            self.write("trainyard/core/a.h", f"TRAINYARD_EXPORT_BEGIN\nnamespace trainyard {{\n{text}}}\nTRAINYARD_EXPORT_END\n")
            found, output = self.check()
            self.assertEqual(found, code, output)
            self.write("trainyard/core/a.h", f"namespace trainyard {{\n{text}}}\nTRAINYARD_EXPORT_BEGIN\nnamespace trainyard {{}}\nTRAINYARD_EXPORT_END\n")
            self.assertEqual(self.check(), (0, ""))

    def test_refuses_a_public_header_that_includes_a_private_one(self):
        self.with_public_headers("trainyard/core/a.h", "trainyard/nn/a.h", "trainyard/all.h")
        self.write("trainyard/all.h", '#include "trainyard/core/a.h"\n#include "trainyard/nn/a.h"\n')
        self.assertEqual(self.check(), (0, ""))
        for user in "trainyard/nn/a.h", "trainyard/all.h":
            self.with_public_headers("trainyard/core/a.h", "trainyard/nn/a.h", "trainyard/all.h")
            self.write(user, 'TRAINYARD_EXPORT_BEGIN\n#include "trainyard/nn/cpu/plan.h"\n')
            code, output = self.check()
            self.assertEqual(code, 1)
            self.assertIn(f"{user}:2: a public header includes trainyard/nn/cpu/plan.h", output)

    def test_refuses_a_public_header_that_is_not_there_or_is_listed_twice(self):
        self.with_public_headers("trainyard/core/a.h", "trainyard/nn/a.h", "trainyard/core/a.h")
        (self.root / "trainyard/nn/a.h").unlink()
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn("trainyard/nn/a.h does not exist", output)
        self.assertIn("trainyard/core/a.h is listed twice", output)

    def test_a_folder_holds_any_number_of_files(self):
        self.with_sub_rooms()
        for number in range(60):
            self.write(f"trainyard/core/base/{number}.h", "")
        self.assertEqual(self.check()[0], 0)


class CheckDefinitions(ScriptTest):
    """Two inline functions or types of one name in one program: no linker says so."""

    def check(self, first, second):
        self.write("trainyard/core/testing/a.h", first)
        self.write("trainyard/core/b.cpp", second)
        return run("check_definitions", self.root)

    @staticmethod
    def within(text, namespace="trainyard::core"):
        return f"namespace {namespace} {{\n{text}\n}}\n"

    def test_a_tests_namespace_has_the_name_of_its_file(self):
        self.write("trainyard/core/a_test.cpp", "namespace trainyard::core::a_test {\nint f();\n}\n")
        self.assertEqual(run("check_definitions", self.root)[0], 0)
        self.write("trainyard/core/b_test.cpp", "namespace trainyard::core {\nint f();\n}\n")
        code, output = run("check_definitions", self.root)
        self.assertEqual(code, 1)
        self.assertIn("trainyard/core/b_test.cpp:1: the namespace of a test ends with the name of its file: ::b_test", output)

    def test_refuses_a_function_or_type_that_two_files_define(self):
        for text in ("inline int answer(int value) {\n  return value;\n}", "struct Answer {\n  int value;\n};",
                     "template <typename T>\nT answer(T value) {\n  return value;\n}"):
            code, output = self.check(self.within(text), self.within("// {\n" + text.replace("value;", "value + 1;")))
            self.assertEqual(code, 1, text)
            self.assertRegex(output, r"testing/a\.h:\d: trainyard::core::[Aa]nswer\S* .*is defined in trainyard/core/b\.cpp")

    def test_refuses_a_constant_with_the_name_of_a_headers(self):
        header = self.within("inline constexpr int kMost = 64;")
        for name in ("kMost", "kFewest"):
            code, output = self.check(header, self.within(self.within(f"constexpr int {name} = 32;", "")))
            self.assertEqual(code, int(name == "kMost"), output)
        code, output = self.check(header, self.within(self.within("constexpr int kMost[] = {3};", "")))
        self.assertEqual(code, 1)
        self.assertIn("trainyard/core/b.cpp:3: kMost has the name of a constant of trainyard/core/testing/a.h", output)
        self.assertEqual(self.check(self.within("inline constexpr int kMost = 64;", "trainyard::core::wire"),
                                    self.within(self.within("constexpr int kMost = 32;", "")))[0], 0)

    def test_accepts_names_that_are_apart(self):
        inline = "inline int answer(int value) {\n  return value;\n}"
        for first, second in ((self.within(inline), self.within(inline.replace("int value", "double value"))),
                              (self.within(inline), self.within(inline, "trainyard::data")),
                              (self.within(inline), self.within(self.within(inline, ""))),
                              (self.within("class A {\n  struct B;\n};"), self.within("struct A::B {\n};")),
                              (self.within(inline), "// " + inline.replace("\n", " ") + '\nconst char* const kText = "struct A {";\n')):
            self.assertEqual(self.check(first, second)[0], 0, second)


class CheckWords(ScriptTest):
    """Comments and names with words that no reader of PyTorch, TensorFlow or oneDNN knows."""

    def check(self, text, name="trainyard/core/a.cpp"):
        path = self.write(name, text)
        code, output = run("check_words", self.root)
        path.unlink()
        return code, output

    def test_refuses_listed_words_of_comments(self):
        for text, line, word in (("// Somebody reads it.\n", 1, "Somebody"), ("int a;\nint b;  // where the loop goes on\n", 2, "goes on"),
                                 ("// The thread that\n// reads it comes\n// back.\n", 2, "comes back"),
                                 ("/* It stands\n   in a file. */\n", 1, "stands"),
                                 ("\n// Of an evaluation: what is evaluated.\n", 2, "Of")):
            code, output = self.check(text)
            self.assertEqual(code, 1, text)
            self.assertIn(f'trainyard/core/a.cpp:{line}: "{word}": write: ', output)

    def test_refuses_listed_words_of_names(self):
        for name in ("SourceAround", "statistics_exchange_", "kHopeless", "TensorSourceAround", "obey"):
            code, output = self.check(f"int first;\nint {name} = 1;\n", "trainyard/core/a.h")
            self.assertEqual(code, 1, name)
            self.assertIn(f'trainyard/core/a.h:2: "{name}": write: ', output)

    def test_accepts_other_words_literals_and_tests(self):
        for text in ('const char* text = "nobody goes on";\n', 'const char* text = R"(// Of a)";\n', "// It stands for a mean.\n",
                     "// Prints \"goes on\".\n", "// Offers one; part Of it.\n", "int disobeyed, climbing_rate;\n", '#include "trainyard/core/obey.h"\n'):
            self.assertEqual(self.check(text), (0, ""), text)
        self.assertEqual(self.check("// Nobody.\n", "trainyard/core/a_test.cpp")[0], 0)
        self.assertEqual(self.check("// Nobody.\n", "tests/a.h")[0], 0)


class CheckClasses(ScriptTest):
    """Classes of trainyard/train with more than 25 member functions, or more than 400 lines."""

    def check(self, header, source=""):
        self.write("trainyard/train/step/a.h", f"namespace trainyard::train {{\n{header}\n}}\n")
        self.write("trainyard/train/step/a.cpp", f"namespace trainyard::train {{\n{source}\n}}\n")
        return run("check_classes", self.root)

    @staticmethod
    def with_members(count, more=""):
        functions = [f"  int f{i}(int a = {i}) const;" if i % 2 else f"  int f{i}() {{\n    return g({i});\n  }}" for i in range(count)]
        return "class Large {\n public:\n" + "\n".join(functions) + f"\n{more}\n private:\n  std::function<int(int)> call_ = make();\n  int n_{{}};\n}};"

    def test_refuses_a_class_of_many_members(self):
        code, output = self.check(self.with_members(26))
        self.assertEqual(code, 1)
        self.assertRegex(output, r"train/step/a\.h:2: trainyard::train::Large has 26 member functions, at most 25")

    def test_counts_what_a_class_declares_and_does_itself(self):
        self.assertEqual(self.check(self.with_members(25)), (0, ""))
        uncounted = "\n".join(["  Large();", "  explicit Large(int n) : n_(n) {}", "  ~Large();", "  Large(const Large&) = delete;",
                               "  Large& operator=(const Large&) = default;", "  friend int g(Large&);", "  using Call = int (*)(int);",
                               "  // int h();", "  struct Inner {\n    int a();\n    int b();\n  };"])
        self.assertEqual(self.check(self.with_members(25, uncounted)), (0, ""))
        for member in ("  bool operator==(const Large& other) const;", "  int operator()(int a);", "  virtual std::vector<int> h() = 0;",
                       "  template <typename T>\n  T h(T a);"):
            self.assertEqual(self.check(self.with_members(25, member))[0], 1, member)

    def test_refuses_a_class_of_many_lines_wherever_they_are(self):
        body = "\n".join(["  ++n_;"] * 390)
        header = "class Long {\n  int f();\n  class Part;\n  int n_ = 0;\n};"
        self.assertEqual(self.check(header, f"int Long::f() {{\n{body}\n}}")[0], 0)
        code, output = self.check(header, f"int Long::f() {{\n{body}\n}}\nLong::Long() {{\n  n_ = 1;\n  n_ = 2;\n  n_ = 3;\n}}")
        self.assertEqual(code, 1)
        self.assertIn("trainyard::train::Long has 402 lines, at most 400", output)
        # A class inside of another one is a class of its own.
        self.assertEqual(self.check(header, f"class Long::Part {{\n  int g();\n}};\nint Long::f() {{\n{body}\n}}\nint Long::Part::g() {{\n{body}\n}}"),
                         (0, ""))


class PublicHeaders(ScriptTest):
    """Scripts that look at the public headers of the tree in which they stand."""

    HEADER = "trainyard/core/base/clock.h"

    def declare(self, text, head="// Clocks: they tell the time.\n"):
        self.write("cmake/PublicHeaders.cmake", f"set(TRAINYARD_PUBLIC_HEADERS\n  {self.HEADER})\n")
        self.write(self.HEADER, f"{head}#pragma once\nnamespace trainyard::core {{\n{text}\n}}\n")

    def run_here(self, name, *arguments):
        self.write(f"scripts/{name}", (SCRIPTS / name).read_text())
        return run_python(self.root / "scripts" / name, *arguments)


class CheckPublic(PublicHeaders):
    def declare(self, text, **head):
        super().declare(text, **head)
        self.write("cmake/PublicHeaders.cmake", f"set(TRAINYARD_PUBLIC_HEADERS\n  trainyard/all.h\n  {self.HEADER})\n")
        self.write("trainyard/all.h", f'#pragma once\n#include "{self.HEADER}"\n')
        self.write("docs/howto/clocks.md", f'```cpp\n#include "trainyard/all.h"\n```\n`{" ".join(re.findall(r"[A-Za-z_]+", text))}`\n')

    def test_refuses_a_member_without_an_initializer(self):
        for member in ("int rate;", "std::string name;  // of the clock", "std::function<void(int, int)> ticks;", "double a, b;",
                       "const std::vector<std::pair<int, int>> marks;"):
            self.declare(f"struct ClockOptions {{\n  int first = 0;\n  {member}\n}};")
            code, output = self.run_here("check_public")
            self.assertEqual(code, 1, member)
            self.assertIn(f"{self.HEADER}:6: ", output)
            self.assertEqual(self.run_here("check_public", "--fix")[0], 0)
            self.assertEqual(self.run_here("check_public"), (0, ""), (self.root / self.HEADER).read_text())

    def test_writes_initializers_behind_names_and_nowhere_else(self):
        self.declare("struct ClockOptions {\n  std::map<int, int> a, b;  // first, last;\n};")
        self.run_here("check_public", "--fix")
        self.assertIn("  std::map<int, int> a{}, b{};  // first, last;\n", (self.root / self.HEADER).read_text())

    def test_refuses_a_result_that_can_be_ignored(self):
        for function in ("int now();", "  std::vector<int> marks() const;", "virtual bool runs() const = 0;"):
            self.declare(f"// Returns what the clock says.\n{function}")
            code, output = self.run_here("check_public")
            self.assertEqual(code, 1, function)
            self.assertIn(f"{self.HEADER}:5: ", output)

    def test_refuses_nodiscard_where_the_type_says_it(self):
        for function in ("core::Result<int> now();", "virtual core::Result<std::vector<int>> marks() const = 0;", "nn::AcceleratorScope use();"):
            self.declare(f"// Returns what the clock says.\n{function}")
            self.assertEqual(self.run_here("check_public"), (0, ""), function)
            self.declare(f"// Returns what the clock says.\n[[nodiscard]] {function}")
            code, output = self.run_here("check_public")
            self.assertEqual(code, 1, function)
            self.assertIn(f"{self.HEADER}:5: its type is [[nodiscard]] itself", output)
            self.assertEqual(self.run_here("check_public", "--fix")[0], 0)
            self.assertEqual(self.run_here("check_public"), (0, ""), function)

    def test_accepts_what_needs_neither(self):
        for text in ("struct A {\n  std::ostream& out;\n  int f() const;\n  using B = int;\n  int c{};\n};", "class A {\n  int value_;\n};",
                     "// Returns the clock.\n[[nodiscard]] int now();", "// Returns the clock.\nClock& clock();", "// Starts it.\nbool start();",
                     "// Returns when it has stopped.\nvoid wait();", "class A {\n  // Returns when it has stopped.\n  void wait();\n};",
                     "class [[nodiscard]] AcceleratorScope {\n};"):
            self.declare(text)
            self.assertEqual(self.run_here("check_public"), (0, ""), text)

    def test_refuses_a_header_that_no_user_gets_to(self):
        self.declare("struct Clock {\n};")
        self.assertEqual(self.run_here("check_public"), (0, ""))
        page = (self.root / "docs/howto/clocks.md").read_text()
        for path, text, expected in (("docs/howto/clocks.md", page.replace("Clock", "Watch"), f"{self.HEADER}:1: no example and no page of docs/howto has a name"),
                                     ("docs/howto/clocks.md", page.replace("all.h", "some.h"), "trainyard/all.h:1: no example and no page of docs/howto includes"),
                                     ("trainyard/all.h", "#pragma once\n", f"{self.HEADER}:1: no umbrella header")):
            self.declare("struct Clock {\n};")
            self.write(path, text)
            code, output = self.run_here("check_public")
            self.assertEqual(code, 1, text)
            self.assertIn(expected, output)

    def test_accepts_a_header_that_a_named_one_includes_or_an_example_names(self):
        self.declare(f'struct Clock {{\n}};\n#include "trainyard/core/base/tick.h"')
        self.write("trainyard/core/base/tick.h", "#pragma once\nstruct Tick {\n};\n")
        self.write("cmake/PublicHeaders.cmake", f"set(TRAINYARD_PUBLIC_HEADERS\n  trainyard/all.h\n  {self.HEADER}\n  trainyard/core/base/tick.h)\n")
        self.assertEqual(self.run_here("check_public"), (0, ""))
        self.write("docs/howto/clocks.md", "")
        self.write("examples/clock.cpp", '#include "trainyard/all.h"\nClock clock;\n')
        self.assertEqual(self.run_here("check_public"), (0, ""))

    def test_refuses_a_header_that_does_not_stand_alone(self):
        for text, code in (("inline int now() { return 0; }", 0), ("inline std::string now() { return {}; }", 1)):
            self.declare(text)
            self.assertEqual(self.run_here("check_public", "--alone", "c++", f"-I{self.root}")[0], code, text)


class CheckAbiOfHeaders(PublicHeaders):
    BEFORE = "struct Clock {\n  int rate = 0;  // Hz\n};"

    def difference(self, text):
        """What the check says where `text` has come into the place of BEFORE."""
        self.declare(self.BEFORE)
        self.write("cmake/public_declarations.txt", "")
        digest = self.run_here("check_abi", "--headers")[1].splitlines()[0].removeprefix("+ ")
        self.write("cmake/public_declarations.txt", digest + "\n")
        self.assertEqual(self.run_here("check_abi", "--headers"), (0, ""))
        self.declare(text, head="// Another comment.\n")
        return self.run_here("check_abi", "--headers")

    def test_refuses_what_no_symbol_shows(self):
        for text in ("struct Clock {\n  long rate = 0;\n};", "struct Clock {\n  int rate = 1;\n};", "struct Clock {\n  int rate = 0;\n  int drift = 0;\n};",
                     "enum Clock { kRate };", 'struct Clock {\n  const char* rate = "//";\n};'):
            code, output = self.difference(text)
            self.assertEqual(code, 1, text)
            self.assertRegex(output, rf"- {self.HEADER} \w+\n\+ {self.HEADER} \w+\ncheck_abi: 1 headers .* are gone or changed, 1 are new")

    def test_accepts_other_comments_and_spaces(self):
        self.assertEqual(self.difference("struct Clock\n{\n\tint rate=0; // ticks a second\n};"), (0, ""))

    def test_refuses_a_header_that_is_gone(self):
        self.declare(self.BEFORE)
        self.write("cmake/public_declarations.txt", "trainyard/core/base/gone.h 0123456789abcdef\n")
        self.assertIn("- trainyard/core/base/gone.h ", self.run_here("check_abi", "--headers")[1])


class ApiIndex(PublicHeaders):
    def page(self, text, **head):
        self.declare(text, **head)
        (self.root / "docs").mkdir(exist_ok=True)
        self.assertEqual(self.run_here("api_index"), (0, ""))
        return (self.root / "docs" / "api.md").read_text()

    def test_says_what_each_type_is(self):
        page = self.page("// Tells the time. Any thread.\nclass Clock {\n};\n\nstruct ClockOptions {\n};\n// Once <a day>:\nstruct Alarm {\n};")
        self.assertIn("| `Clock` | Tells the time. | [`base/clock.h`](../trainyard/core/base/clock.h) |", page)
        self.assertIn("| `Alarm` | Once &lt;a day>. |", page)
        self.assertNotIn("ClockOptions", page)

    def test_takes_the_headers_words_where_a_type_has_none(self):
        for text, name in (("// One thread at a time.\nclass Clock {\n};", "Clock"), ("[[nodiscard]] int now();", "now()"), ("#define CLOCK 1", "CLOCK")):
            self.assertIn(f"| `{name}` | Clocks: they tell the time. |", self.page(text))

    def test_knows_whether_the_page_is_up_to_date(self):
        self.page("// Tells the time.\nclass Clock {\n};")
        self.assertEqual(self.run_here("api_index", "--check"), (0, ""))
        self.declare("// Shows the time.\nclass Clock {\n};")
        self.assertEqual(self.run_here("api_index", "--check")[0], 1)


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

    def test_accepts_10_seconds_of_the_last_compilation(self):
        self.assertEqual(self.check(10), (0, "1 files took 10 s: 10 s the program, 0 s its tests; the slowest 10.0 s; 1 not measured\n"))

    def test_refuses_more(self):
        code, output = self.check(10.2)
        self.assertEqual(code, 1)
        self.assertIn("a.cpp: 10.2 s to compile", output)

    def test_a_slower_machine_may_scale_the_budget(self):
        self.assertEqual(self.check(19, TRAINYARD_BUILD_TIME_SCALE="2")[0], 0)

    def test_what_holds_several_sources_is_exempt_but_not_from_the_sums(self):
        for source in ("cmake_pch.hxx.cxx", "x.dir/Unity/unity_0_cxx.cxx"):
            self.assertEqual(self.check(40, source=source)[0], 0)
            self.assertEqual(self.check(351, source=source)[0], 1)
        for folder in ("x_test.dir", "x_test_optimized.dir", "x_testing.dir"):
            self.assertEqual(self.check(351, source=f"{folder}/Unity/unity_0_cxx.cxx")[0], 0)
        code, output = self.check(701, source="x_test.dir/cmake_pch.hxx.cxx")
        self.assertEqual(code, 1)
        self.assertIn("tests and benchmarks: 701 s to compile, budget 700 s", output)

    def test_time_compile_notes_the_source_and_keeps_the_exit_code(self):
        done = subprocess.run([SCRIPTS / "time_compile", "bash", "-c", "exit 3", "-o", "a.o", "a.cpp", "-MD"], cwd=self.root)
        self.assertEqual(done.returncode, 3)
        noted = (self.root / "compile_times.log").read_text()
        self.assertRegex(noted, r"^a\.cpp\t[0-9.]+ [0-9.]+\n$")


class ReportTests(ScriptTest):
    SKIPPED = ('<testcase name="A.S" classname="A.S" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
               '<system-out>a_test.cpp:3: Skipped\nneeds x\n[  SKIPPED ] A.S</system-out></testcase>')
    PASSED = '<testcase name="A.P" classname="A.P" status="run"/>'
    FAILED = '<testcase name="A.F" classname="A.F" status="fail"><failure message=""/></testcase>'
    # As GoogleTest itself writes them.
    OWN_SKIPPED = ('<testcase name="S" status="run" result="skipped" classname="B"><skipped message="b_test.cpp:3&#x0A;needs y&#x0A;">'
                   '<![CDATA[b_test.cpp:3\nneeds y\n]]></skipped></testcase>')
    OWN_FAILED = '<testcase name="F" status="run" result="completed" classname="B"><failure message="x"/></testcase>'

    def report(self, cases, allowed, preset="release", more=()):
        junits = [self.write(f"tests{i}.xml", f"<testsuite>{text}</testsuite>") for i, text in enumerate([cases, *more])]
        return run("report_tests", *junits, self.write("allowed.txt", allowed), preset)

    def test_names_and_counts_skips_that_are_allowed(self):
        for allowed in ("all needs x # why\n", "# a comment\n\ntsan,release  needs *\n"):
            self.assertEqual(self.report(self.SKIPPED + self.PASSED, allowed),
                             (0, "skipped: A.S: needs x\n1 skipped: needs x\n1 passed, 0 failed, 1 skipped\n"))

    def test_scripts_say_their_reason_behind_a_word(self):
        script = self.SKIPPED.replace("a_test.cpp:3: Skipped\nneeds x\n[  SKIPPED ] A.S", "1 server\nskipped: needs x (get it)\n")
        self.assertEqual(self.report(script, "all needs x *"),
                         (0, "skipped: A.S: needs x (get it)\n1 skipped: needs x (get it)\n0 passed, 0 failed, 1 skipped\n"))

    def test_counts_each_reason(self):
        other = self.SKIPPED.replace("A.S", "A.T")
        code, output = self.report(self.OWN_SKIPPED + self.SKIPPED + other, "all needs x\nall needs y\n")
        self.assertEqual(code, 0)
        self.assertIn("\n2 skipped: needs x\n1 skipped: needs y\n0 passed, 0 failed, 3 skipped\n", output)

    def test_counts_the_cases_of_a_group_instead_of_the_group(self):
        group = '<testcase name="core.A,B" classname="core.A,B" status="run"/>'
        own = '<testcase name="P" status="run" result="completed" classname="A"/>'
        self.write("results/core.xml", f"<testsuites><testsuite>{own}{own}</testsuite></testsuites>")
        junit, allowed = self.write("tests.xml", f"<testsuite>{group}{self.PASSED}</testsuite>"), self.write("allowed.txt", "")
        self.assertEqual(run("report_tests", junit, self.root / "results", allowed, "release"), (0, "3 passed, 0 failed, 0 skipped\n"))
        self.write("tests.xml", f'<testsuite>{group.replace("run", "fail")}{self.PASSED}</testsuite>')
        code, output = run("report_tests", junit, self.root / "results", allowed, "release")
        self.assertEqual(code, 1)
        self.assertIn("failed: core.A,B\n", output)

    def test_refuses_skips_for_other_reasons(self):
        for allowed in ("", "all needs\n", "all needs x or y\n", "all x\n", "all A.S\n"):
            code, output = self.report(self.SKIPPED + self.PASSED, allowed)
            self.assertEqual(code, 1)
            self.assertRegex(output, "refused: A.S was skipped, but .*allowed.txt does not allow its reason for release: needs x\n")
        silent = '<testcase name="A.Q" status="notrun"><skipped message=""/></testcase>'
        self.assertIn("refused: A.Q was skipped", self.report(silent, "all needs *\n")[1])

    def test_says_at_the_end_what_failed_tests_said(self):
        told = ("[ RUN      ] B.C\nb.cpp:3: Failure\nExpected: (1) &lt; (0)\n[  FAILED  ] B.C (1 ms)\n[ RUN      ] B.D\nb.cpp:4: Failure\nno\n\n"
                "[  FAILED  ] B.D (1 ms)\n" + "[       OK ] B.E (1 ms)\n" * 99)
        failed = self.FAILED.replace("</testcase>", f"<system-out>{told}</system-out></testcase>")
        other = self.FAILED.replace("A.F", "A.G").replace("</testcase>", "<system-out>first\n" + "x\n" * 29 + "last\n</system-out></testcase>")
        code, output = self.report(failed + other, "", more=[self.OWN_FAILED])
        self.assertEqual(code, 1)
        lines = output.splitlines()
        self.assertEqual(lines[3:7], [f"failed: A.F: {line}" for line in ("b.cpp:3: Failure", "Expected: (1) < (0)", "b.cpp:4: Failure", "no")])
        self.assertEqual(lines[7:-1], ["failed: A.G: x"] * 29 + ["failed: A.G: last", "failed: B.F: x"])

    def test_a_skip_is_allowed_for_its_presets_only(self):
        allowed = "tsan,asan-ubsan  needs x  # why\n"
        self.assertEqual(self.report(self.SKIPPED + self.PASSED, allowed, "tsan")[0], 0)
        self.assertEqual(self.report(self.SKIPPED + self.PASSED, allowed, "asan-ubsan")[0], 0)
        for preset in ("release", "asan", "san"):
            self.assertEqual(self.report(self.SKIPPED + self.PASSED, allowed, preset)[0], 1)

    def test_sums_files_of_ctest_and_of_googletest_up(self):
        code, output = self.report(self.PASSED, "all needs y\n", more=[self.OWN_SKIPPED])
        self.assertEqual((code, output), (0, "skipped: B.S: needs y\n1 skipped: needs y\n1 passed, 0 failed, 1 skipped\n"))
        code, output = self.report(self.PASSED, "all needs y\n", more=[self.OWN_SKIPPED, self.OWN_FAILED])
        self.assertEqual(code, 1)
        self.assertIn("failed: B.F\n", output)
        self.assertIn("1 passed, 1 failed, 1 skipped", output)

    def test_a_line_without_a_reason_is_an_error(self):
        code, output = self.report(self.PASSED, "# a comment\nall  # why\n")
        self.assertEqual(code, 1)
        self.assertIn("allowed.txt:2: expected presets and a reason: all", output)

    def test_refuses_failures_and_an_empty_run(self):
        self.assertEqual(self.report(self.FAILED + self.PASSED, "")[0], 1)
        self.assertEqual(self.report("", "")[0], 1)

    def test_all_tests_skip_for_reasons_that_are_listed(self):
        root = SCRIPTS.parent
        header = (root / "trainyard/core/testing/skip_reasons.h").read_text()
        reasons = dict(re.findall(r'constexpr const char\* (\w+) = "(.*)";', header))
        listed = {line.split(None, 1)[1] for line in (root / "tests/allowed_skips.txt").read_text().splitlines() if line[:1] not in ("", "#")}
        self.assertEqual(set(reasons.values()) - listed, set())
        # Tests that are scripts say theirs themselves.
        scripts = "".join(path.read_text() for path in (root / "tests").rglob("*.py") if path.name != "scripts_test.py")
        own = {reason for reason in listed if reason.endswith(" *") and
               (reason[:-1] in scripts or '"needs {program} (' in scripts and f'"{reason[len("needs "):-2]}"' in scripts)}
        self.assertEqual(listed - set(reasons.values()) - own, {"needs the shared data *"} - own)
        for source in [path for room in ("trainyard", "tests") for path in (root / room).rglob("*.[ch]*") if path.suffix in (".h", ".cpp")]:
            for said in re.findall(r"GTEST_SKIP\(\)(.*)", "" if source.name in ("skip_reasons.h", "test_data.h") else source.read_text()):
                self.assertRegex(said, rf"core::skip::({'|'.join(reasons)})\b|core::missing_shared_data\(", source)


class QuickTests(ScriptTest):
    """scripts/quick_tests.py with a test program that only pretends."""

    PROGRAM = """#!/bin/bash
if [ "$1" = --gtest_list_tests ]; then printf 'Fast.  # TypeParam = int\\n  One\\n  Two\\nAll/Slow.\\n  Three/0  # GetParam() = 3\\n'; exit; fi
echo "$1" >> "$(dirname "$0")/ran"
if [[ $1 == *Two* ]]; then echo "[  FAILED  ] Fast.Two"; exit 1; fi
echo "[  PASSED  ] 2 tests."
"""

    def quick(self, text, *arguments):
        self.write("trainyard_core_test", self.PROGRAM).chmod(0o755)
        return run("quick_tests.py", f"--build={self.root}", f"--list={self.write('list.txt', text)}", "--jobs=1", *arguments)

    def test_runs_the_suites_of_a_room_in_one_process(self):
        code, output = self.quick("# why\ncore Fast  # 0.10 s\ncore All/Slow -Three/0  # 0.2 s\n")
        self.assertEqual(code, 0)
        self.assertEqual((self.root / "ran").read_text(), "--gtest_filter=All/Slow.*:Fast.*-All/Slow.Three/0\n")
        self.assertIn("quick tests: 2 passed", output)

    def test_deals_a_long_room_out(self):
        self.assertEqual(self.quick("core Fast  # 11 s\ncore All/Slow.Three/0  # 12 s\n")[0], 0)
        self.assertEqual((self.root / "ran").read_text(), "--gtest_filter=All/Slow.Three/0\n--gtest_filter=Fast.*\n")

    def test_a_failed_test_fails(self):
        code, output = self.quick("core Fast.Two\n")
        self.assertEqual(code, 1)
        self.assertIn("[  FAILED  ] Fast.Two", output)

    def test_the_check_names_what_is_not_there(self):
        self.assertEqual(self.quick("core Fast -Two\ncore All/Slow.Three/0\n", "--check"), (0, ""))
        for line, message in (("core Fats", "room core has no suite Fats"), ("data Fast", "there is no .*trainyard_data_test"),
                              ("core Fast -Tow", "suite Fast has no case Tow"), ("core Fast.Tow", "suite Fast has no case Tow"),
                              ("core Fast\ncore Fast", "core Fast is there twice")):
            code, output = self.quick(line + "\n", "--check")
            self.assertEqual(code, 2, line)
            self.assertRegex(output, message)
        self.assertFalse((self.root / "ran").exists())
        self.assertEqual(self.quick("core Fast Two\n", "--check")[0], 1)
        self.assertEqual(self.quick("# nothing\n", "--check")[0], 1)

    def test_names_the_programs(self):
        self.assertEqual(self.quick("core Fast\ndata Other\ncore All/Slow\n", "--programs"), (0, "trainyard_core_test\ntrainyard_data_test\n"))


class ChooseQuick(ScriptTest):
    """scripts/choose_quick on a tree of two sources: what finds most in a second comes first."""

    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", "set(TRAINYARD_ROOMS core data)\n")
        self.write("trainyard/core/base/small.cpp", "x\n" * 10)
        self.write("trainyard/core/base/large.cpp", "x\n" * 990)
        self.write("trainyard/core/base/small_test.cpp", "TEST(Small, A) {}\n")
        self.write("trainyard/core/base/large_test.cpp", "TEST_P(Large, A) {}\n")
        self.write("trainyard/data/base/far_test.cpp", "TEST(Far, A) {}\n")
        self.record = self.write("tests/mutation_record.tsv", "# comment\n")
        self.times(core={"Small": {"A": 0.4}, "Seeds/Large": {"A/0": 0.3, "B/0": 0.8}}, data={"Far": {"A": 0.4}})

    def times(self, **rooms):
        for room, suites in rooms.items():
            made = {suite: {case: [seconds, seconds] for case, seconds in cases.items()} for suite, cases in suites.items()}
            self.write(f"build/test_times/{room}.json", json.dumps(made))

    def choose(self, seconds, *arguments):
        code, output = run("choose_quick", f"--root={self.root}", f"--seconds={seconds}", *arguments)
        self.assertEqual(code, 0, output)
        lines = (self.root / "tests/quick_tests.txt").read_text().splitlines() if not arguments else []
        return [line for line in lines if line[0] != "#"], output

    def test_without_a_record_lines_of_code_decide(self):
        self.assertEqual(self.choose(0.45)[0], ["core Seeds/Large -B/0  # 0.30 s"])

    def test_the_record_decides(self):
        row = "trainyard/core/base/small.cpp\tcall\tx\ty\t"
        self.record.write_text("".join(f"7\t{row}{test}\n" for test in ["Far.A"] * 300 + ["Large.B/0"] * 10 + [""]))
        chosen, output = self.choose(0.45)
        self.assertEqual(chosen, ["data Far  # 0.40 s"])
        self.assertIn("7: 300 of 311", output)
        self.assertEqual(self.choose(9)[0], ["core Seeds/Large  # 1.10 s", "core Small  # 0.40 s", "data Far  # 0.40 s"])

    def test_a_room_finds_no_mistakes_of_rooms_behind_it(self):
        self.record.write_text("7\ttrainyard/data/base/a.cpp\tcall\tx\ty\tSmall.A\n" * 300)
        self.assertEqual(self.choose(0.45)[0], ["core Seeds/Large -B/0  # 0.30 s"])

    def test_a_busy_machine_makes_waiting_no_dearer(self):
        self.write("build/test_times/core.json", json.dumps({"Small": {"A": [4, 0.4], "B": [3, 0.3]}, "Seeds/Large": {"A/0": [1, 0]}}))
        self.assertEqual(self.choose(9)[0][:2], ["core Seeds/Large  # 0.10 s", "core Small  # 0.70 s"])

    def test_takes_the_times_of_a_run_of_all_tests(self):
        (self.root / "build/test_times/data.json").unlink()
        self.write("build/test_results/data.Far,More-1a.xml", """<testsuites><testsuite name="Far">
            <testcase name="A" status="run" result="completed" time="0.25" classname="Far" />
            <testcase name="B" status="run" result="skipped" time="0.25" classname="Far"><skipped message=""/></testcase>
            <testcase name="C" status="run" result="completed" time="9" classname="Far"><failure message="x"/></testcase>
            </testsuite></testsuites>""")
        self.assertEqual(self.choose(9)[0][-1], "data Far  # 0.25 s")

    def test_measures_each_case_that_passes(self):
        self.write("build/trainyard_core_test", """#!/bin/bash
echo "[----------] 3 tests from Small"
for ((i = 0; i < 300000; i++)); do :; done
printf '[       OK ] Small.A/0 (12 ms)\\n[  FAILED  ] Small.B (3 ms)\\n[  FAILED  ] Small.C/1, where GetParam() = 3 (3 ms)\\n'
printf '[----------] 3 tests from Small (15 ms total)\\n[       OK ] Other.D (7 ms)\\n'
""").chmod(0o755)
        self.assertEqual(run("choose_quick", f"--root={self.root}", "--measure", "core", PATH="/usr/bin:/bin")[0], 0)
        found = json.loads((self.root / "build/test_times/core.json").read_text())
        self.assertEqual({suite: {case: clock for case, (clock, _) in cases.items()} for suite, cases in found.items()},
                         {"Small": {"A/0": 0.012}, "Other": {"D": 0.007}})
        self.assertGreater(found["Small"]["A/0"][1], 0.2)

    def test_adds_a_log_of_mutate_to_the_record(self):
        entries = [{"file": "trainyard/core/base/small.cpp", "rule": "call", "old": "a( );", "new": ";", "state": state, "test": test}
                   for state, test in (("survived", ""), ("killed", "Small.A"), ("survived", ""), ("same code", ""))]
        log = self.write("log", "".join(json.dumps(entry) + "\n" for entry in entries))
        self.choose(1, f"--add={log}", "--draw=8")
        self.assertEqual(self.record.read_text().splitlines()[2:], ["8\ttrainyard/core/base/small.cpp\tcall\ta( );\t;\tSmall.A"])


class CheckDocs(ScriptTest):
    """Pages that say what the tree is: each list with one entry too many, one too few and one twice."""

    ARCHITECTURE = """# Architecture

## Rooms

### core

| folder | what it holds |
|---|---|
| `base` | errors |
| `files` | files |

### cli

It has no folders.

## One step

| step | what |
|---|---|
| `1` | one |
"""
    CONTRIBUTING = """# Contributing

## Build, test, lint

| command | what it does |
|---|---|
| `make test` | all |
| `bash .ci/run` | more |

| preset | folder | for |
|---|---|---|
| `release` | `build` | `-O3` |

| option | default | meaning |
|---|---|---|
| `TRAINYARD_MPI`, `TRAINYARD_TESTS` | `AUTO` | processes |
| `CMAKE_CUDA_ARCHITECTURES` | `80` | GPUs |

## Layout

```
trainyard/<room>/   code
trainyard/<room>/testing/   tests
docs/     pages
cmake/    modules
examples/ programs
recipes/  trainings
```

The rooms, in order: core, cli. A room uses rooms to its left only.
"""
    README = """# Small

| | |
|---|---|
| what | [a page](docs/howto/page.md#a-heading) of words |

```cpp
int main() {}
```
"""

    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", "set(TRAINYARD_ROOMS core cli)\n")
        self.write("cmake/Options.cmake", 'option(TRAINYARD_TESTS "x" ON)\nset(TRAINYARD_MPI AUTO CACHE STRING "x")\nset(TRAINYARD_OWN 1)\n')
        self.write("CMakePresets.json", '{"configurePresets": [{"name": "release"}]}')
        self.write("Makefile", "help: ## List\n\t@true\ntest: build ## Run\n\t./test.sh\n")
        self.write("trainyard/core/CMakeLists.txt", "trainyard_room(\n  NAME core\n  SUBROOMS base # first\n    files\n  SOURCES\n    a.cpp)\n")
        self.write("trainyard/cli/CMakeLists.txt", "trainyard_room(\n  NAME cli\n  SOURCES\n    a.cpp)\n")
        self.write("examples/readme.cpp", "// README: begin\nint main() {}\n// README: end\n")
        self.write("docs/howto/page.md", "# A page\n\n## A `heading`\n\n![none](../../cmake) `[not](a link)`\n")
        self.write("docs/howto/README.md", "[page.md](page.md)\n")
        self.write("recipes/one.yaml", "model: one\n")
        self.write("docs/recipes.md", "[one](../recipes/one.yaml)\n")
        self.write("docs/design/architecture.md", self.ARCHITECTURE)
        self.write("CONTRIBUTING.md", self.CONTRIBUTING)
        self.write("README.md", self.README)

    def problems(self, name=None, old="", new=""):
        text = (self.root / name).read_text() if name else ""
        if name:
            self.assertIn(old, text)
            self.write(name, text.replace(old, new, 1))
        code, output = run("check_docs", self.root)
        self.assertEqual(code, 1 if output else 0)
        if name:
            self.write(name, text)
        return output.splitlines()

    def test_accepts_pages_that_are_right(self):
        self.assertEqual(self.problems(), [])

    def test_compares_the_rooms_and_their_folders(self):
        page = "docs/design/architecture.md"
        for old, new, message in (
                ("| `files` | files |\n", "", "core: folder files is missing"), ("`files`", "`flies`", "core: there is no folder flies"),
                ("| `files` | files |\n", "| `files` | f |\n| `files` | f |\n", "core: folder files is there twice"),
                ("It has no folders.", "| folder | x |\n|---|---|\n| `base` | x |", "cli: there is no folder base"),
                ("### cli", "### cil", "room cli has no heading of its own")):
            self.assertIn(message, "\n".join(self.problems(page, old, new)), new)
        for old, new, message in (("base # first", "base memory", "folder memory is missing"), ("SUBROOMS base", "SUBROOMS", "there is no folder base")):
            self.assertIn(message, "\n".join(self.problems("trainyard/core/CMakeLists.txt", old, new)))

    def test_compares_the_lists_of_contributing(self):
        for name, old, new, message in (
                ("CONTRIBUTING.md", "make test", "make tests", "there is no command of the Makefile tests"),
                ("Makefile", "test: build", "lint: ## Lint\ntest: build", "command of the Makefile lint is missing"),
                ("CONTRIBUTING.md", "`release` | `build`", "`debug` | `build`", "preset release is missing"),
                ("CMakePresets.json", '{"name": "release"}', '{"name": "release"}, {"name": "dev"}', "preset dev is missing"),
                ("CONTRIBUTING.md", "`TRAINYARD_MPI`, ", "", "option TRAINYARD_MPI is missing"),
                ("cmake/Options.cmake", "option(TRAINYARD_TESTS", "option(TRAINYARD_TESTING", "option TRAINYARD_TESTING is missing"),
                ("CONTRIBUTING.md", "in order: core, cli", "in order: cli, core", "the order of the rooms is not that of CMakeLists.txt: core, cli"),
                ("CONTRIBUTING.md", "cmake/    modules\n", "", "folder cmake is missing"),
                ("CONTRIBUTING.md", "docs/  ", "attic/ ", "there is no folder attic")):
            self.assertIn(message, "\n".join(self.problems(name, old, new)), message)

    def test_holds_the_readme_short_and_its_program_true(self):
        self.assertEqual(len(self.problems("README.md", "of words", "word " * 24)), 1)
        self.assertEqual(self.problems("README.md", "of words", "word " * 23), [])
        self.assertEqual(len(self.problems("README.md", "int main() {}", "int main();")), 1)
        self.assertEqual(len(self.problems("examples/readme.cpp", "int main() {}", "int main();")), 1)

    def test_finds_links_that_lead_nowhere_and_pages_that_no_list_names(self):
        for name, old, new, message in (
                ("README.md", "page.md#", "pages.md#", "README.md: docs/howto/pages.md#a-heading leads nowhere"),
                ("README.md", "#a-heading", "#another", "README.md: docs/howto/page.md#another: there is no such heading"),
                ("docs/howto/page.md", "../../cmake", "../cmake", "docs/howto/page.md: ../cmake leads nowhere"),
                ("docs/howto/README.md", "(page.md)", "(README.md)", "docs/howto/README.md: page.md is not named"),
                ("docs/recipes.md", "[one](../recipes/one.yaml)", "one", "docs/recipes.md: one.yaml is not named")):
            self.assertEqual(self.problems(name, old, new), [message])


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


class HostileCases(ScriptTest):
    def test_a_program_that_a_sanitizer_ends_is_a_fault(self):
        self.write("trainyard_hostile_cases", "#!/bin/sh\necho 'ERROR: AddressSanitizer: heap-use-after-free' >&2\nexit 1\n").chmod(0o755)
        done = subprocess.run([sys.executable, SCRIPTS.parent / "tests/hostile/run.py", self.root, "--kind=images", "--cases=1"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("ended with 1: ERROR: AddressSanitizer", done.stdout)

    def test_a_process_that_a_sanitizer_ends_is_not_one_that_refuses(self):
        self.write("trainyard", "#!/bin/sh\necho 'ERROR: AddressSanitizer: heap-use-after-free' >&2\nexit 1\n").chmod(0o755)
        done = subprocess.run([sys.executable, SCRIPTS.parent / "tests/hostile/run.py", self.root, "--kind=processes", "--cases=1", "--first=5"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("AddressSanitizer", done.stdout)


class Documents(unittest.TestCase):
    def test_tests_that_stand_for_those_of_tf_cnn_benchmarks_are_there(self):
        there = set()
        for source in ROOT.glob("trainyard/**/*_test.cpp"):
            there.update(f"{suite}.{name}" for suite, name in
                         re.findall(r"^TEST(?:_F|_P)?\((\w+), *(\w+)\)", source.read_text(), re.MULTILINE))
        named = re.findall(r"`(\w+\.\w+)`", (ROOT / "docs/tf_cnn_benchmarks_tests.md").read_text())
        self.assertGreater(len(named), 30)
        self.assertEqual([name for name in named if name not in there], [])

    def test_each_test_of_tf_cnn_benchmarks_is_listed(self):
        page = (ROOT / "docs/tf_cnn_benchmarks_tests.md").read_text()
        _, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
        distributed = [text for text in sections if text.startswith("benchmark_cnn_distributed_test.py")]
        local = [text for text in sections if text not in distributed]
        rows = (ROOT / "trainyard/frontends/testdata/upstream_tests.tsv").read_text().splitlines()
        self.assertEqual(len(rows), 150)
        for file, _, name in (row.split("\t") for row in rows):
            there = distributed if file.startswith("benchmark_cnn_distributed") else local
            # Two files are listed as a whole: their models are compared layer by layer.
            wanted = file.rsplit("/")[-1].removesuffix(".py") if file.startswith("models/tf1_only/") else name
            self.assertTrue(any(re.search(rf"\b{wanted}\b", text) for text in there), f"{file}: {name}")

    def test_the_readme_names_each_model_that_is_refused(self):
        readme = (ROOT / "README.md").read_text()
        section = re.search(r"^## What is missing\n(.*?)(?=^#|\Z)", readme, re.MULTILINE | re.DOTALL).group(1)
        source = (ROOT / "trainyard/models/registry/model_registry.cpp").read_text()
        models = re.findall(r'"(\w+)"', re.search(r"string_view later : \{([^}]*)\}", source).group(1))
        self.assertGreater(len(models), 0)
        self.assertEqual([model for model in models if f"`{model}`" not in section], [])


if __name__ == "__main__":
    unittest.main()
