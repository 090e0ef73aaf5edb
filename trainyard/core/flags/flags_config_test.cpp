#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/flags_table.h"

namespace trainyard::core::flags_config_test {
namespace {

class FlagsConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = join_path(::testing::TempDir(), "flags_config_" + std::to_string(::getpid()) + ".yaml");
  }
  void TearDown() override {
    if (local_file_system().exists(path_)) local_file_system().remove_file(path_);
  }
  FlagValues read(const std::string& yaml) {
    local_file_system().write_file_atomically(path_, yaml);
    FlagValues values(table_);
    read_config_file(path_, values);
    return values;
  }
  // The error's line with the file's path as FILE.
  std::string failure(const std::string& yaml) {
    std::string line = flag_error_of([&] { read(yaml); }).line;
    if (const size_t at = line.find(path_); at != std::string::npos) line.replace(at, path_.size(), "FILE");
    return line;
  }
  const FlagTable table_ = small_table();
  std::string path_;
};

TEST_F(FlagsConfig, ReadsOneFlatMapping) {
  const FlagValues values = read(
      "# a comment\nbatch_size: 16\neval: yes\nmomentum: 0.5\noptimizer: momentum\neval_steps: [1, 2]\n"
      "data_dir: \"/data set\"\nnum_batches: null\n");
  EXPECT_EQ(values.integer("batch_size"), 16);
  EXPECT_TRUE(values.boolean("eval"));
  EXPECT_DOUBLE_EQ(values.real("momentum"), 0.5);
  EXPECT_EQ(values.text("optimizer"), "momentum");
  EXPECT_EQ(values.list("eval_steps"), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(values.text("data_dir"), "/data set");
  EXPECT_EQ(values.source("batch_size"), FlagSource::kFile);
  EXPECT_FALSE(values.given("num_batches"));
  EXPECT_FALSE(read("").given("eval"));
}

TEST_F(FlagsConfig, TheCommandLineStandsOverTheFile) {
  local_file_system().write_file_atomically(path_, "batch_size: 16\nmomentum: 0.5\n");
  const FlagValues values = parse_flags(table_, {"--batch_size=8", "--config=" + path_});
  EXPECT_EQ(values.integer("batch_size"), 8);
  EXPECT_DOUBLE_EQ(values.real("momentum"), 0.5);
}

TEST_F(FlagsConfig, ErrorsNameFileAndLine) {
  EXPECT_EQ(failure("eval: true\nbatch_size: -1\n"),
            "Param batch_size value of -1 is lower than the lower bound of 0: FILE:2");
  EXPECT_EQ(failure("bath_size: 1\n"), "Unknown flag 'bath_size': FILE:1; did you mean --batch_size?");
  EXPECT_EQ(failure("eval: true\nmomentum: 0.5\neval: false\n"), "flag eval is given twice, first in line 1: FILE:3");
  EXPECT_EQ(failure("eval:\n"), "flag eval has no value: FILE:1");
  EXPECT_EQ(failure("Run:\n  eval: true\n"),
            "flag Run in a config file takes one value: FILE:1; config files are one flat mapping of `flag: value`");
  EXPECT_EQ(failure("eval_steps: [[1], 2]\n"),
            "flag eval_steps in a config file takes one value: FILE:1; config files are one flat mapping of "
            "`flag: value`");
  EXPECT_EQ(failure("- eval\n"), "config file is not a mapping of `flag: value`: FILE:1");
  EXPECT_EQ(failure("config: other.yaml\n"), "flag config cannot stand in a config file: FILE:1");
  EXPECT_EQ(failure("[a, b]: 1\n"), "a key of a config file is not a name: FILE:1");
  EXPECT_EQ(failure("eval: true\nmomentum: 0.5: 1\n"), "config file is not valid YAML: illegal map value: FILE:2");
  EXPECT_EQ(failure("eval: true\n---\nmomentum: 0.5\n"), "config file holds more than one YAML document: FILE");
}

TEST_F(FlagsConfig, AMissingFileIsNotFound) {
  EXPECT_EQ(flag_error_of([&] { parse_flags(table_, {"--config=/nowhere/x.yaml"}); }).code, "not_found");
}

// yaml-cpp alone takes the second and the third.
TEST_F(FlagsConfig, AQuoteThatDoesNotEndIsAnError) {
  for (const char* text : {"spec: \"a", "spec: \"a\n", "eval: true\nspec: 'a\n\n", "eval_steps: [a, \"b\n"}) {
    EXPECT_TRUE(failure(text).starts_with("config file is not valid YAML: ")) << text << failure(text);
  }
  EXPECT_EQ(read("spec: |\n  a\n").text("spec"), "a\n");
  EXPECT_EQ(read("spec: |+\n  a\n\n").text("spec"), "a\n\n");
  EXPECT_EQ(read("spec: >-\n  a").text("spec"), "a");
  EXPECT_EQ(read("spec: a").text("spec"), "a");
  EXPECT_FALSE(read("# a comment alone").given("spec"));
}

// Names of files need not be UTF-8.
TEST_F(FlagsConfig, TheDumpKeepsEveryByte) {
  std::string text;
  for (int byte = 1; byte < 256; ++byte) text += static_cast<char>(byte);
  for (const std::string& value :
       {text, std::string("a\0b", 3), std::string("\\\"\n\t# x: y"), std::string("\xff\xc3")}) {
    FlagValues values(table_);
    values.set("data_dir", value, FlagSource::kCommandLine);
    values.set("eval_steps", "\xe9t\xe9,\xff", FlagSource::kCommandLine);
    const FlagValues again = read(dump_config(values));
    EXPECT_EQ(again.text("data_dir"), value);
    EXPECT_EQ(again.list("eval_steps"), values.list("eval_steps"));
  }
}

// yaml-cpp alone finds empty documents in it until memory is exhausted.
TEST_F(FlagsConfig, ATextThatBeginsLikeTheRestOfAListIsAnError) {
  for (const char* text : {",", ", a", "]", "}", ",\n", "eval: true\n---\n,"}) {
    EXPECT_EQ(flag_error_of([&] { read(text); }).code, "invalid_argument") << text;
  }
}

// A part of a list that is left out would give a value that the file does not have.
TEST_F(FlagsConfig, AListIsTakenWholeOrRefused) {
  for (const char* list : {"[a, [b], c]", "[a, {b: c}]", "[a, ~, c]", "[[a]]"}) {
    EXPECT_EQ(failure(std::string("eval: yes\neval_steps: ") + list + "\n"),
              "flag eval_steps in a config file takes one value: FILE:2; config files are one flat mapping of `flag: "
              "value`")
        << list;
  }
  EXPECT_EQ(read("eval_steps: ['', a, '']\n").list("eval_steps"), (std::vector<std::string>{"", "a", ""}));
  EXPECT_EQ(read("eval_steps: []\n").list("eval_steps"), std::vector<std::string>());
  const FlagValues given = parse_flags(table_, {"--eval_steps=,a"});
  EXPECT_EQ(read(dump_config(given)).list("eval_steps"), given.list("eval_steps"));
}

TEST_F(FlagsConfig, TheDumpReadsBackAsTheSameValues) {
  FlagValues values(table_);
  values.set("batch_size", "7", FlagSource::kCommandLine);
  values.set("clip", "1e-300", FlagSource::kCommandLine);
  values.set("unified", "false", FlagSource::kCommandLine);
  values.set("data_dir", "\t\"quotes\", # hashes: and \\ \xC3\xA9\n", FlagSource::kCommandLine);
  values.set("eval_steps", "1,2", FlagSource::kCommandLine);
  for (const bool only_given : {false, true}) {
    const FlagValues again = read(dump_config(values, only_given));
    for (const FlagSpec& spec : table_.all()) EXPECT_EQ(again.value(spec.name), values.value(spec.name)) << spec.name;
  }
  EXPECT_TRUE(flag_warnings(read(dump_config(values))).empty());  // what a run dumped can be run
}

// A default that is read back would count as given.
TEST_F(FlagsConfig, TheDumpHasDefaultsAsComments) {
  FlagValues values(table_);
  values.set("batch_size", "0", FlagSource::kCommandLine);  // its default, but asked for
  const std::string dump = dump_config(values);
  for (const char* line : {"\nbatch_size: 0\n", "\n# momentum: 0.9\n", "\n# eval: false\n", "\n# eval_steps: []\n",
                           "\n# spec: \"a|b\"\n", "\n# num_batches: not set\n"}) {
    EXPECT_NE(dump.find(line), std::string::npos) << line << dump;
  }
  const FlagValues again = read(dump);
  for (const FlagSpec& spec : table_.all()) EXPECT_EQ(again.given(spec.name), spec.name == "batch_size") << spec.name;
}

TEST_F(FlagsConfig, TheDumpHasEachGroupsNameOnce) {
  FlagTable table;
  table.integer("one", 1, "").group("First");
  table.boolean("two", false, "").group("First");
  table.text("three", std::nullopt, "").group("Second");
  table.text("four", "x", "").group("Second");
  FlagValues values(table);
  values.set("one", "2", FlagSource::kCommandLine);
  EXPECT_EQ(dump_config(values), "# First\none: 2\n# two: false\n\n# Second\n# three: not set\n# four: \"x\"\n");
  EXPECT_EQ(dump_config(values, true), "one: 2\n");
}

TEST_F(FlagsConfig, TheDumpLeavesOpenWhatTheProgramDecides) {
  FlagValues values(table_);
  EXPECT_FALSE(read(dump_config(values)).given("device"));
  values.set("device", "gpu", FlagSource::kCommandLine);  // its default, but asked for
  EXPECT_TRUE(read(dump_config(values)).given("device"));
  EXPECT_EQ(dump_config(values, true), "device: \"gpu\"\n");
}

// The file is sparse: nothing of it is on the disk.
TEST_F(FlagsConfig, AFileHasAtMostOneMebibyte) {
  local_file_system().write_file_atomically(path_, "x");
  std::filesystem::resize_file(path_, (1 << 20) + 1);
  FlagValues values(table_);
  EXPECT_EQ(flag_error_of([&] { read_config_file(path_, values); }).line,
            "file is too large: " + path_ +
                ": expected at most 1048576 bytes, got 1048577 bytes; check that it is the right file");
}

}  // namespace
}  // namespace trainyard::core::flags_config_test
