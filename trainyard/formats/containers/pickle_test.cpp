#include "trainyard/formats/containers/pickle.h"

#include <optional>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats::pickle_test {
namespace {

using Kind = PickleValue::Kind;
using std::string_literals::operator""s;

// The error of parsing `content`.
core::Error error_of(std::string_view content) {
  try {
    Pickle::parse(content);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
    return error;
  }
  ADD_FAILURE() << "parsed it";
  return {core::ErrorCode::kInternal, "none"};
}

// pickle.dumps({"a": [1, -2, 70000], "b": (None, True)}, 2)
const std::string kSmall = "\x80\x02}q\0(X\1\0\0\0aq\1]q\2(K\1J\xfe\xff\xff\xffJp\x11\1\0eX\1\0\0\0bq\3N\x88\x86q\4u."s;

TEST(Pickle, ParsesPlainValues) {
  const Pickle pickle = Pickle::parse(kSmall);
  const PickleValue* list = pickle.root().find("a");
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->items.size(), 3U);
  EXPECT_EQ(list->items[0]->integer, 1);
  EXPECT_EQ(list->items[1]->integer, -2);
  EXPECT_EQ(list->items[2]->integer, 70000);
  const PickleValue* tuple = pickle.root().find("b");
  ASSERT_NE(tuple, nullptr);
  EXPECT_EQ(tuple->kind, Kind::kTuple);
  EXPECT_EQ(tuple->items[0]->kind, Kind::kNone);
  EXPECT_EQ(tuple->items[1]->kind, Kind::kBoolean);
  EXPECT_EQ(pickle.root().find("c"), nullptr);
}

// What pickle.loads() would run: os.system("true"), by each instruction that names a function.
TEST(Pickle, CodeIsRefusedByName) {
  const core::Error global = error_of(
      "\x80\x02"
      "cos\nsystem\n(X\4\0\0\0truetR."s);
  EXPECT_EQ(global.detail().problem, "pickle refers to code that no CIFAR-10 batch needs");
  EXPECT_EQ(global.detail().actual, "os.system");
  EXPECT_EQ(global.detail().where, "offset 2");
  EXPECT_EQ(error_of("\x80\x04\x8c\2os\x8c\6system\x93(t."s).detail().actual, "os.system");
  EXPECT_EQ(error_of("\x80\x02"
                     "cnumpy\nload\n."s)
                .detail()
                .actual,
            "numpy.load");
  EXPECT_EQ(error_of("\x80\x02"
                     "c__builtin__\neval\n."s)
                .detail()
                .actual,
            "__builtin__.eval");
}

TEST(Pickle, OtherInstructionsAreRefusedByNameAndOffset) {
  // INST, OBJ, NEWOBJ, NEWOBJ_EX, PERSID, BINPERSID, EXT1, BINFLOAT, DUP, POP, LONG1, FROZENSET, NEXT_BUFFER.
  for (const char opcode : "io\x81\x92PQ\x82G20\x8a\x91\x97"s) {
    const core::Error error = error_of("\x80\x02N"s + opcode + "\0\0\0\0\0\0\0\0."s);
    EXPECT_EQ(error.detail().problem, "pickle has an instruction that no CIFAR-10 batch needs") << int{opcode};
    EXPECT_EQ(error.detail().where, "offset 3");
  }
  for (const auto& [opcode, shown] : {std::pair("i", "0x69 ('i')"),
                                      {" ", "0x20 (' ')"},
                                      {"~", "0x7e ('~')"},
                                      {"\x1f", "0x1f ('?')"},
                                      {"\x7f", "0x7f ('?')"},
                                      {"\x81", "0x81 ('?')"}}) {
    EXPECT_EQ(error_of(opcode).detail().actual, std::string("opcode ") + shown);
  }
}

TEST(Pickle, FunctionsAreOnlyCalledAsArraysDo) {
  const std::string dtype = "cnumpy\ndtype\n"s;
  for (const std::string& program : {
           dtype + "]R."s,                                                   // arguments that are no tuple
           dtype + ")R."s,                                                   // none
           "K\1)R."s,                                                        // an integer called
           "cnumpy\nndarray\n)R."s,                                          // the constructor called directly
           "c_codecs\nencode\nX\1\0\0\0aX\4\0\0\0utf8\x86R."s,               // another encoding
           "c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R."s,  // a euro sign
           "cnumpy.core.multiarray\n_reconstruct\n)R."s,
           "cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\0\x85U\1b\x87R."s,  // of another class
           "cnumpy.core.numeric\n_frombuffer\n(C\0"
           "C\0)C\1FtR."s,  // Fortran order
           "]K\1b."s,       // state that is no tuple
           "])b."s,         // state of a list
       }) {
    error_of("\x80\x02" + program);
  }
}

TEST(Pickle, ArraysMustBeBytesOfTheirShape) {
  // numpy.array([1, 2], uint8).reshape(shape) with `bytes`, of the type `type`.
  const auto array = [](const std::string& shape, const std::string& bytes, const std::string& type) {
    return "\x80\x02"
           "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1"s +
           shape + "cnumpy\ndtype\nU\2"s + type + "K\0K\1\x87R\x89"s + bytes + "tb.";
  };
  const std::string content = array("K\1K\2\x86", "U\2xy", "u1");
  const Pickle good = Pickle::parse(content);
  EXPECT_EQ(good.root().kind, Kind::kArray);
  EXPECT_EQ(good.root().text, "xy");
  EXPECT_EQ(good.root().items[1]->integer, 2);
  std::string fortran = content;
  fortran.replace(fortran.find('\x89'), 1, "\x88");
  EXPECT_EQ(error_of(fortran).detail().problem, "pickle gives state to a value that is no array in C order");

  error_of(array("K\1K\3\x86", "U\2xy", "u1"));                                      // too few bytes
  error_of(array("K\2\x85", "U\2xy", "f4"));                                         // floats
  error_of(array("J\xff\xff\xff\xff\x85", "U\2xy", "u1"));                           // a negative size
  error_of(array("(J\0\0\0\x40J\0\0\0\x40J\0\0\0\x40J\0\0\0\x40t"s, "U\0"s, "u1"));  // 2^120 bytes: wraps to 0
  error_of(array("]\x85", "U\2xy", "u1"));                                           // a size that is a list
  error_of(array("K\2\x85", "]", "u1"));                                             // bytes that are a list
}

TEST(Pickle, StackMarksAndMemoAreChecked) {
  for (const std::string& program : {"."s, "a."s, "]a."s, "e."s, "]e."s, "(."s, "(K\1(."s, "t."s, "\x87."s, "h\0."s,
                                     "j\0\0\0\0."s, "q\0."s, "\x94."s, "}(K\1u."s, "}K\1s."s, "K\1(K\2e."s, "N]s."s}) {
    error_of("\x80\x02" + program);
  }
  EXPECT_EQ(error_of("\x80\x06N."s).detail().problem, "pickle is of another protocol");
  EXPECT_EQ(error_of("\x80\x02}K\1a."s).detail().expected, "a list") << "what the instruction works on";
  EXPECT_EQ(error_of("\x80\x02]K\1K\2s."s).detail().expected, "a dictionary");
}

TEST(Pickle, LengthsAreCheckedAgainstTheContent) {
  for (const std::string& program : {"U\xffx"s, "T\xff\xff\xff\xffx"s, "B\xff\xff\xff\x7fx"s,
                                     "\x8e\xff\xff\xff\xff\xff\xff\xff\xffx"s, "\x96\0\0\0\0\0\0\0\x10x"s, "cnumpy"s}) {
    error_of("\x80\x04" + program);
  }
}

// A pickle can refer to itself and nest without end; neither recursion nor a leak follows.
TEST(Pickle, CirclesAndDepthAreHarmless) {
  const Pickle circle = Pickle::parse("\x80\x02]q\0h\0a."s);
  EXPECT_EQ(circle.root().items[0], &circle.root());
  const int depth = 400'000;
  const Pickle deep = Pickle::parse("\x80\x02"s + std::string(depth, ']') + std::string(depth - 1, 'a') + ".");
  EXPECT_EQ(deep.root().items.size(), 1U);
}

// 100,000 arrays with one shape of 100,000 sizes would keep 80 GB of it.
TEST(Pickle, ShapesAreLimited) {
  std::string program =
      "\x80\x02"
      "cnumpy.core.numeric\n_frombuffer\n(U\1xcnumpy\ndtype\nU\2u1K\0K\1\x87R("s;
  for (int i = 0; i < 9; ++i) program += "K\1";
  program += "tU\1CtR"s;
  EXPECT_EQ(error_of(program + ".").detail().problem, "pickle holds a malformed array");
}

TEST(Pickle, InstructionsAndDecodedTextAreLimited) {
  EXPECT_NE(error_of(std::string(2'000'000, 'N')).detail().problem.find("more than 1048576 instructions"),
            std::string::npos);
  // One text of 1,000 bytes, decoded a thousand times.
  std::string program =
      "\x80\x02"
      "c_codecs\nencode\nq\0X\xe8\x03\0\0"s +
      std::string(1000, 'x') + "X\6\0\0\0latin1\x86q\1"s;
  for (int i = 0; i < 1000; ++i) program += "h\0h\1R"s;
  EXPECT_EQ(error_of(program + ".").detail().problem, "pickle decodes more text than it holds");
}

// 2^64 + 1 and -2^64, as checkpoints hold random seeds.
TEST(Pickle, IntegersOfAnyLengthAreNumbers) {
  const auto real = [](const std::string& bytes) {
    const std::string program = "\x80\x02\x8a\x09"s + bytes + ".";
    const Pickle pickle = Pickle::parse(program, PickleVocabulary::kTorchStateDict);
    EXPECT_EQ(pickle.root().kind, Kind::kReal);
    return pickle.root().real;
  };
  EXPECT_EQ(real("\1\0\0\0\0\0\0\0\1"s), 0x1p64);
  EXPECT_EQ(real("\0\0\0\0\0\0\0\0\xff"s), -0x1p64);
}

TEST(Pickle, NumbersOfTensorsAreThoseOfPython) {
  const auto integer = [](const std::string& bytes) {
    const std::string program = "\x80\x02\x8a"s + static_cast<char>(bytes.size()) + bytes + ".";
    const Pickle pickle = Pickle::parse(program, PickleVocabulary::kTorchStateDict);
    EXPECT_EQ(pickle.root().kind, Kind::kInteger);
    return pickle.root().integer;
  };
  EXPECT_EQ(integer(""), 0);
  EXPECT_EQ(integer("\xff"s), -1);
  EXPECT_EQ(integer("\x80"s), -128);
  EXPECT_EQ(integer("\x80\0"s), 128);
  EXPECT_EQ(integer("\1\2\3"s), 0x030201);
  EXPECT_EQ(integer("\0\0\0\0\0\0\0\x80"s), INT64_MIN);
  const auto real = [](const std::string& program) {
    return Pickle::parse("\x80\x02" + program + ".", PickleVocabulary::kTorchStateDict).root().real;
  };
  EXPECT_EQ(real("G\x3f\xf8\0\0\0\0\0\0"s), 1.5);
  EXPECT_EQ(real("\x8a\x09\0\x20\0\0\0\0\0\0\1"s), 0x1p64 + 8192);
}

TEST(Pickle, TheLastValueOfAKeyCounts) {
  const std::string content = "\x80\x02}(U\1aK\1U\1bK\2U\1aK\3u."s;
  const Pickle pickle = Pickle::parse(content);
  EXPECT_EQ(pickle.root().find("a")->integer, 3);
  EXPECT_EQ(pickle.root().find("b")->integer, 2);
}

TEST(Pickle, ADictionaryAloneHasKeys) {
  for (const std::string& content : {"\x80\x02](U\1aK\1e."s, "\x80\x02U\1aK\1\x86."s}) {
    const Pickle pickle = Pickle::parse(content);
    ASSERT_EQ(pickle.root().items.size(), 2U);
    EXPECT_EQ(pickle.root().find("a"), nullptr);
  }
}

TEST(Pickle, SaysWhatItTakesAndWhatIsThere) {
  const core::Error cut = error_of("\x80\x02U\5xy"s);
  EXPECT_STREQ(cut.what(),
               "pickle ends within an instruction: offset 2: expected 5 further bytes, got 2; use a batch "
               "file of CIFAR-10 as it is published");
  for (const char protocol : "\x02\x03\x04\x05"s) EXPECT_NO_THROW(Pickle::parse("\x80"s + protocol + "N."));
  for (const char protocol : "\x01\x06"s) {
    const core::Error other = error_of("\x80"s + protocol + "N.");
    EXPECT_EQ(other.detail().expected, "2 to 5");
    EXPECT_EQ(other.detail().actual, std::to_string(int{protocol}));
  }
}

// A tuple of a thousand, and what copies it: once would be harmless, a hundred thousand times would not.
TEST(Pickle, LongTuplesAreNotCopied) {
  const std::string tuple = "(U\7storage"s + std::string(1000, 'N') + "t";
  for (const std::string& program : {tuple + "Q.", "ctorch._utils\n_rebuild_tensor_v2\n"s + tuple + "R."}) {
    EXPECT_THROW(Pickle::parse("\x80\x02" + program, PickleVocabulary::kTorchStateDict), core::Error);
  }
}

TEST(Pickle, DamagedPicklesGiveValuesOrErrors) {
  for_each_truncation(kSmall, [](std::string_view part) { error_of(part); });
  const auto read = [](const std::string& damaged) {
    try {
      Pickle::parse(damaged);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
    }
  };
  for_each_mutation(kSmall, 5000, read);
  for (const char* name : {"cifar_python2_protocol2.pickle", "cifar_python3_protocol2.pickle",
                           "cifar_python3_protocol4.pickle", "cifar_python3_protocol5.pickle"}) {
    // Without most of the pixels, so that the changes meet the instructions.
    std::string content = testdata(name);
    content.erase(content.size() / 2 - 2800, 5600);
    for_each_mutation(content, 2000, read);
  }
}

// No module is one that is known, whatever the name is.
TEST(Pickle, CodeWithoutAModuleIsRefused) {
  const std::string program =
      "\x80\x02"
      "c\nAnyStorage\n."s;
  for (const PickleVocabulary vocabulary : {PickleVocabulary::kCifarBatch, PickleVocabulary::kTorchStateDict}) {
    const core::Error error = core::thrown_by([&] { Pickle::parse(program, vocabulary); });
    EXPECT_EQ(error.detail().expected, "data alone");
    EXPECT_EQ(error.detail().actual, ".AnyStorage");
  }
  const std::string long_name =
      "\x80\x02"
      "c"s +
      std::string(70, 'm') + "\nname\n.";
  EXPECT_EQ(error_of(long_name).detail().actual, std::string(60, 'm')) << "as much of it as a line shows";
}

TEST(Pickle, EightValuesAreCopied) {
  const std::string begin =
      "\x80\x02"
      "cnumpy.core.numeric\n_frombuffer\n(U\1xcnumpy\ndtype\nU\2u1K\0K\1\x87R("s;
  std::string sizes;
  for (int i = 0; i < 8; ++i) sizes += "K\1";
  const std::string array = begin + sizes + "tU\1CtR.";
  const Pickle shaped = Pickle::parse(array);
  EXPECT_EQ(shaped.root().kind, Kind::kArray);
  EXPECT_EQ(shaped.root().items.size(), 8U);
  for (const bool more : {false, true}) {
    const std::string nones(more ? 8 : 7, 'N');
    const std::string storage = "\x80\x02(U\7storage"s + nones + "tQ.", tensor =
                                                                            "\x80\x02"
                                                                            "ctorch._utils\n_rebuild_tensor_v2\n(N"s +
                                                                            nones + "tR.";
    for (const std::string& program : {storage, tensor}) {
      size_t items = 0;
      const auto code =
          core::code_of([&] { items = Pickle::parse(program, PickleVocabulary::kTorchStateDict).root().items.size(); });
      EXPECT_EQ(code, more ? std::optional(core::ErrorCode::kCorruptData) : std::nullopt);
      EXPECT_EQ(items, more ? 0U : 8U);
    }
  }
}

// By Python's pickletools, which describes each.
TEST(Pickle, EachInstructionGivesItsValue) {
  const auto text = [](const std::string& program) {
    const std::string content = "\x80\x04" + program + ".";
    const Pickle pickle = Pickle::parse(content);
    return pickle.root().kind == Kind::kString ? std::string(pickle.root().text) : "no text";
  };
  for (const char opcode : "UC\x8c"s) EXPECT_EQ(text(opcode + "\2ab"s), "ab") << int{opcode};
  for (const char opcode : "TBX"s) EXPECT_EQ(text(opcode + "\2\0\0\0ab"s), "ab") << int{opcode};
  for (const char opcode : "\x8e\x96"s) EXPECT_EQ(text(opcode + "\2\0\0\0\0\0\0\0ab"s), "ab") << int{opcode};

  const auto integer = [](const std::string& program) {
    return Pickle::parse("\x80\x04" + program + ".").root().integer;
  };
  EXPECT_EQ(integer("K\xff"), 255);
  EXPECT_EQ(integer("M\x34\x12"), 0x1234);
  EXPECT_EQ(integer("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(integer("\x88"), 1);
  EXPECT_EQ(integer("\x89"), 0);
  EXPECT_EQ(integer("\x95\1\2\3\4\5\6\7\x08K\7"), 7) << "behind the length of a frame";
  EXPECT_EQ(integer("K\7q\1K\x08h\1"), 7);
  EXPECT_EQ(integer("K\7r\x2c\1\0\0K\x08j\x2c\1\0\0"s), 7);
  EXPECT_EQ(integer("K\7\x94K\x08\x94h\0"s), 7);
  EXPECT_EQ(integer("K\7\x94K\x08\x94Nh\1"), 8);

  const auto numbers = [](const std::string& program) {
    const Pickle pickle = Pickle::parse("\x80\x04" + program + ".");
    std::vector<int64_t> values;
    for (const PickleValue* item : pickle.root().items) values.push_back(item->integer);
    return values;
  };
  EXPECT_EQ(numbers(")"), std::vector<int64_t>());
  EXPECT_EQ(numbers("K\1\x85"), std::vector<int64_t>{1});
  EXPECT_EQ(numbers("K\1K\2\x86"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(numbers("K\1K\2K\3\x87"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(numbers("(K\1K\2K\3K\4t"), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(numbers("](K\1K\2e"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(numbers("]K\5a"), std::vector<int64_t>{5});
}

TEST(Pickle, SaysWhichInstructionIsWrong) {
  const std::string other = "pickle holds another value than its instruction works on", dtype = "cnumpy\ndtype\n";
  const struct {
    std::string program;  // behind the protocol's two bytes
    int offset;
    std::string problem, detail;
  } cases[] = {{".", 2, "pickle takes a value that is not there", ""},
               {"K\1", 4, "pickle ends within an instruction", ": expected 1 further bytes, got 0"},
               {"NM\1", 3, "pickle ends within an instruction", ": expected 2 further bytes, got 1"},
               {"cnumpy", 2, "pickle ends within a name", ""},
               {"t.", 2, "pickle refers to a mark that is not there", ""},
               {"}(K\1u.", 6, "pickle gives a key without a value", ""},
               {"h\0."s, 2, "pickle refers to a value that it has not kept", ""},
               {"cnumpy\nndarray\n)R.", 18, "pickle calls a function as no CIFAR-10 batch does", ""},
               {"c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R."s, 38,
                "pickle holds text that is not Latin-1", ""},
               {"])b.", 4, "pickle gives state to a value that is no array in C order", ""},
               {"]K\1b.", 5, other, ": expected a tuple of state"},
               {"K\1)R.", 5, other, ": expected a function"},
               {dtype + "]R.", 16, other, ": expected a tuple of arguments"},
               {"K\1K\1\x93.", 6, other, ": expected a function's name"},
               {"K\1U\1a\x93.", 7, other, ": expected a module's name"},
               {"cos\nsystem\n.", 2, "pickle refers to code that no CIFAR-10 batch needs",
                ": expected data alone, got os.system"},
               {"NQ.", 3, "pickle has an instruction that no CIFAR-10 batch needs", ": got opcode 0x51 ('Q')"}};
  for (const auto& each : cases) {
    EXPECT_EQ(std::string(error_of("\x80\x02" + each.program).what()),
              each.problem + ": offset " + std::to_string(each.offset) + each.detail +
                  "; use a batch file of CIFAR-10 as it is published");
  }
}

TEST(Pickle, SaysWhatIsWrongWithAnArray) {
  // numpy.core.numeric._frombuffer(bytes, dtype, shape, 'C')
  const auto said = [](const std::string& bytes, const std::string& type, const std::string& shape) {
    const core::Error error = error_of(
        "\x80\x02"
        "cnumpy.core.numeric\n_frombuffer\n(" +
        bytes + type + shape + "U\1CtR.");
    return error.detail().problem + "|" + error.detail().expected + "|" + error.detail().actual;
  };
  const auto dtype = [](const std::string& name) { return "cnumpy\ndtype\nU\2" + name + "\x85R"; };
  EXPECT_EQ(said("U\2xy", dtype("f4"), "K\2\x85"), "pickle holds an array of another type|uint8|f4");
  EXPECT_EQ(said("U\2xy", "N", "K\2\x85"), "pickle holds an array of another type|uint8|");
  EXPECT_EQ(said("U\2xy", dtype("u1"), "K\3\x85"), "pickle holds an array whose shape and bytes disagree|3 bytes|2");
  EXPECT_EQ(said("U\2xy", dtype("u1"), "K\2K\2\x86"), "pickle holds an array whose shape and bytes disagree|4 bytes|2");
  EXPECT_EQ(said("U\2xy", dtype("u1"), "J\xff\xff\xff\xff\x85"), "pickle holds an array of an impossible shape||");
  EXPECT_EQ(said("U\2xy", dtype("u1"), "N\x85"), "pickle holds an array of an impossible shape||");
  EXPECT_EQ(said("U\2xy", dtype("u1"), "N"), "pickle holds a malformed array||");
  EXPECT_EQ(said("N", dtype("u1"), "K\2\x85"), "pickle holds a malformed array||");
}

TEST(Pickle, SaysWhatAStateDictNeeds) {
  const auto said = [](const std::string& program) {
    const std::string content = "\x80\x02" + program;
    return core::message_of([&] { Pickle::parse(content, PickleVocabulary::kTorchStateDict); },
                            core::ErrorCode::kCorruptData);
  };
  const std::string remedy = "; save the state dict alone: torch.save(model.state_dict(), path)",
                    no_storage = "pickle refers to something beside it that is no storage: offset ";
  EXPECT_EQ(said(")Q."), no_storage + "3" + remedy);
  EXPECT_EQ(said("N\x85Q."), no_storage + "4" + remedy);
  EXPECT_EQ(said("U\6module\x85Q."), no_storage + "11" + remedy);
  EXPECT_EQ(said("U\7storage\x85Q."), "no error");
  EXPECT_EQ(said("NQ."),
            "pickle holds another value than its instruction works on: offset 3: expected a tuple" + remedy);
  EXPECT_EQ(said("NP."),
            "pickle has an instruction that no state dict needs: offset 3: got opcode 0x50 ('P')" + remedy);
  EXPECT_EQ(said("cnumpy\ndtype\n."),
            "pickle refers to code that no state dict needs: offset 2: expected data alone, "
            "got numpy.dtype" +
                remedy);
  EXPECT_EQ(said("ccollections\nOrderedDict\nN\x85R."),
            "pickle calls a function as no state dict does: offset 29" + remedy);
  EXPECT_EQ(said("ctorch._utils\n_rebuild_parameter\nN\x85R."),
            "pickle calls a function as no state dict does: offset 37" + remedy);
}

}  // namespace
}  // namespace trainyard::formats::pickle_test
