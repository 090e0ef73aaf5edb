#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/flags_table.h"

namespace trainyard::core::flags_parse_test {
namespace {

class FlagsParse : public ::testing::Test {
 protected:
  FlagValues parse(const std::vector<std::string>& arguments) { return parse_flags(table_, arguments); }
  FlagError failure(const std::vector<std::string>& arguments) {
    return flag_error_of([&] { parse(arguments); });
  }
  const FlagTable table_ = small_table();
};

TEST_F(FlagsParse, BooleansInEverySpelling) {
  EXPECT_TRUE(parse({"--eval"}).boolean("eval"));
  EXPECT_TRUE(parse({"-eval"}).boolean("eval"));
  EXPECT_TRUE(parse({"--eval=true"}).boolean("eval"));
  EXPECT_FALSE(parse({"--eval=False"}).boolean("eval"));
  EXPECT_FALSE(parse({"--eval", "--noeval"}).boolean("eval"));
  EXPECT_FALSE(parse({"--nonormalize"}).boolean("normalize"));
  EXPECT_TRUE(parse({"--normalize"}).boolean("normalize"));  // begins with "no", negates nothing
  EXPECT_EQ(parse({"--nounified"}).optional_boolean("unified"), false);
}

TEST_F(FlagsParse, ValuesAfterEqualsOrBlank) {
  EXPECT_EQ(parse({"--batch_size=8"}).integer("batch_size"), 8);
  EXPECT_EQ(parse({"--batch_size", "8"}).integer("batch_size"), 8);
  EXPECT_EQ(parse({"-batch_size", "8"}).integer("batch_size"), 8);
  EXPECT_DOUBLE_EQ(parse({"--clip", "-1.5"}).real("clip"), -1.5);
  EXPECT_EQ(parse({"--data_dir="}).optional_text("data_dir"), "");
  EXPECT_EQ(parse({"--data_dir=a=b"}).text("data_dir"), "a=b");
  EXPECT_EQ(parse({"--eval_steps=2,3,5"}).list("eval_steps"), (std::vector<std::string>{"2", "3", "5"}));
}

TEST_F(FlagsParse, NamesMayHaveDashesWhereTheTableTakesThem) {
  FlagTable table = small_table();
  EXPECT_NE(flag_error_of([&] { parse_flags(table, {"--batch-size=8"}); }).problem, "");
  table.take_dashes();
  EXPECT_EQ(parse_flags(table, {"--batch-size=8"}).integer("batch_size"), 8);
  EXPECT_EQ(parse_flags(table, {"--batch-size", "8"}).integer("batch_size"), 8);
  EXPECT_EQ(parse_flags(table, {"--batch_size", "8"}).integer("batch_size"), 8);
  EXPECT_DOUBLE_EQ(parse_flags(table, {"--clip", "-1.5"}).real("clip"), -1.5);
  EXPECT_EQ(parse_flags(table, {"--data-dir=a-b"}).text("data_dir"), "a-b");
}

TEST_F(FlagsParse, TheLastOfSeveralStands) {
  EXPECT_EQ(parse({"--batch_size=8", "--batch_size=16"}).integer("batch_size"), 16);
}

TEST_F(FlagsParse, DifferentValuesOfOneFlagCanBeRefused) {
  const auto strict = [this](const std::vector<std::string>& arguments) {
    return parse_flags(table_, arguments, Repeats::kRefused);
  };
  EXPECT_EQ(flag_error_of([&] {
              strict({"--batch_size=8", "--batch_size", "16"});
            }).line,
            "--batch_size is given twice with different values: got 8 and 16; leave one of them out");
  EXPECT_EQ(flag_error_of([&] {
              strict({"--eval", "--clip=1", "--noeval"});
            }).line,
            "--eval is given twice with different values: got true and false; leave one of them out");
  EXPECT_EQ(flag_error_of([&] {
              strict({"--eval_steps=1,2", "--eval_steps=1"});
            }).problem,
            "--eval_steps is given twice with different values");
  EXPECT_EQ(strict({"--batch_size=8", "--batch_size=8"}).integer("batch_size"), 8);
  EXPECT_TRUE(strict({"--eval", "--eval=true"}).boolean("eval"));
  std::vector<std::string> positional;
  EXPECT_EQ(flag_error_of([&] {
              parse_flags(table_, {"--clip=1", "x", "--clip=2"}, positional, Repeats::kRefused);
            }).code,
            "invalid_argument");
}

TEST_F(FlagsParse, ShortForms) {
  FlagTable table;
  table.integer("batch_size", 1, "images").short_form('b');
  table.choice("iter_unit", "batch", {"epoch", "batch"}, "unit").short_form('u');
  table.boolean("verbose", false, "more").short_form('v');
  table.integer("bins", 2, "begins as a short form does");
  const auto read = [&](const std::vector<std::string>& arguments) { return parse_flags(table, arguments); };
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"-b", "32", "-u", "epoch"}, {"-b=32", "-u=epoch"}, {"-b32", "-uepoch"}}) {
    EXPECT_EQ(read(arguments).integer("batch_size"), 32) << arguments[0];
    EXPECT_EQ(read(arguments).text("iter_unit"), "epoch") << arguments[0];
  }
  EXPECT_TRUE(read({"-v"}).boolean("verbose"));
  EXPECT_EQ(read({"-bins=3"}).integer("bins"), 3) << "a whole name comes first";
  table.integer("number", 1, "its short form begins all that switches a flag off").short_form('n');
  EXPECT_FALSE(read({"-v", "-noverbose"}).boolean("verbose"));
  EXPECT_EQ(flag_error_of([&] {
              read({"-n", "-noverbose"});
            }).line,
            "Missing value for flag --number: got the flag -noverbose; write --number=-noverbose if that is its value");
  EXPECT_EQ(read({"-n3"}).integer("number"), 3);
  EXPECT_EQ(flag_error_of([&] {
              read({"-b", "-u"});
            }).line,
            "Missing value for flag --batch_size: got the flag -u; write --batch_size=-u if that is its value");
  EXPECT_NE(flag_error_of([&] { read({"-bx"}); }).line.find("batch_size"), std::string::npos);
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"-batchsize=8"}, {"-batchsize", "8"}}) {
    EXPECT_EQ(flag_error_of([&] { read(arguments); }).line, "Unknown flag 'batchsize'; did you mean --batch_size?");
  }
  EXPECT_EQ(flag_error_of([&] { read({"--b=3"}); }).problem, "Unknown flag 'b'") << "one dash makes the short form";
  EXPECT_NE(help_text(table).find("--batch_size=<integer>, -b (default: 1)"), std::string::npos);
  EXPECT_NE(help_text(table).find("--[no]verbose, -v (default: false)"), std::string::npos);
  table.integer("bad", 1, "another").short_form('b');
  EXPECT_EQ(flag_error_of([&] { read({"-b3"}); }).code, "internal");
}

TEST_F(FlagsParse, PositionalArgumentsAreRefused) {
  EXPECT_EQ(failure({"--batch_size=8", "x", "y"}).problem, "Received unknown positional arguments: ['x', 'y']");
  EXPECT_EQ(failure({"--", "--eval"}).problem, "Received unknown positional arguments: ['--eval']");
  EXPECT_EQ(failure({"-"}).problem, "Received unknown positional arguments: ['-']");
  EXPECT_EQ(failure({"--normalize", "False"}).line,
            "Received unknown positional arguments: ['False']; a boolean is written --normalize, --nonormalize or "
            "--normalize=false");
}

TEST_F(FlagsParse, ForgottenValues) {
  EXPECT_EQ(failure({"--data_dir"}).problem, "Missing value for flag --data_dir");
  EXPECT_EQ(failure({"--data_dir", "--eval"}).line,
            "Missing value for flag --data_dir: got the flag --eval; write --data_dir=--eval if that is its value");
  EXPECT_EQ(parse({"--data_dir=--eval"}).text("data_dir"), "--eval");
  EXPECT_EQ(failure({"--data_dir", "--noeval"}).line,
            "Missing value for flag --data_dir: got the flag --noeval; write --data_dir=--noeval if that is its value");
  EXPECT_EQ(parse({"--data_dir", "--nothing"}).text("data_dir"), "--nothing") << "no flag";
}

TEST_F(FlagsParse, NegationsThatMakeNoSense) {
  EXPECT_EQ(failure({"--noeval=true"}).line, "Flag --noeval does not take a value; write --eval=true");
  EXPECT_EQ(failure({"--nobatch_size"}).problem, "Unknown flag 'nobatch_size'");
}

TEST_F(FlagsParse, UnknownNamesSuggestTheNearest) {
  EXPECT_EQ(failure({"--batchsize=8"}).line, "Unknown flag 'batchsize'; did you mean --batch_size?");
  EXPECT_EQ(failure({"--batch-size", "8"}).line, "Unknown flag 'batch-size'; did you mean --batch_size?");
  EXPECT_EQ(failure({"--zzzzzz"}).line, "Unknown flag 'zzzzzz'; see --help for all flags");
}

TEST_F(FlagsParse, AnIntegerMayBeAWord) {
  FlagTable table;
  table.integer("batch", 0, "").word("auto").word("largest").bounds(0, 10);
  table.integer("steps", 0, "");
  table.text("name", "auto", "");
  const FlagValues word = parse_flags(table, {"--batch=largest", "--name=auto"});
  EXPECT_TRUE(word.is_word("batch"));
  EXPECT_FALSE(word.is_word("name"));
  EXPECT_EQ(word.value("batch"), FlagValue(std::string("largest")));
  EXPECT_TRUE(word.changed("batch"));
  EXPECT_THROW((void)word.integer("batch"), Error) << "who reads it has to ask first";
  const FlagValues number = parse_flags(table, {"--batch=3"});
  EXPECT_FALSE(number.is_word("batch"));
  EXPECT_EQ(number.integer("batch"), 3);
  EXPECT_EQ(flag_error_of([&] { parse_flags(table, {"--batch=Auto"}); }).problem,
            "Param batch value of Auto is not an integer");
  EXPECT_EQ(flag_error_of([&] { parse_flags(table, {"--steps=auto"}); }).problem,
            "Param steps value of auto is not an integer");
  EXPECT_NE(help_text(table).find("--batch=<integer or auto or largest, at least 0"), std::string::npos);
}

TEST(FlagsParseBounds, MayLeaveOutTheirEnds) {
  FlagTable table;
  table.real("share", 0.5, "a share").bounds(0).below(1);
  table.real("width", 1, "a width").bounds({}, 8).above(0);
  const auto value = [&](const char* flag, const char* name) { return parse_flags(table, {flag}).real(name); };
  EXPECT_EQ(value("--share=0", "share"), 0);
  EXPECT_EQ(value("--share=0.999999", "share"), 0.999999);
  EXPECT_EQ(value("--width=8", "width"), 8);
  EXPECT_EQ(value("--width=1e-300", "width"), 1e-300);
  const auto problem = [&](const char* flag) { return problem_of([&] { parse_flags(table, {flag}); }); };
  EXPECT_EQ(problem("--share=1"), "Param share value of 1 must be below 1");
  EXPECT_EQ(problem("--share=1.5"), "Param share value of 1.5 is higher than the upper bound of 1");
  EXPECT_EQ(problem("--width=0"), "Param width value of 0 must be above 0");
  EXPECT_EQ(problem("--width=-1"), "Param width value of -1 is lower than the lower bound of 0");
  const std::string help = help_text(table);
  EXPECT_NE(help.find("--share=<float, at least 0, below 1>"), std::string::npos) << help;
  EXPECT_NE(help.find("--width=<float, above 0, at most 8>"), std::string::npos) << help;
}

TEST_F(FlagsParse, FlagsOfAnotherRuntimeWarnOnce) {
  EXPECT_EQ(flag_warnings(parse({"--barrier"})),
            std::vector<std::string>{"--barrier has no effect here: barriers are ours"});
  EXPECT_EQ(flag_warnings(parse({"--nobarrier"})).size(), 1u);
  EXPECT_TRUE(flag_warnings(parse({})).empty());
  EXPECT_TRUE(flag_warnings(parse({"--optimizer=momentum", "--mkl"})).empty());
}

TEST_F(FlagsParse, APositionalArgumentHasARemedyBehindABooleanAlone) {
  const std::string begin = "Received unknown positional arguments: ";
  EXPECT_EQ(failure({"x"}).line, begin + "['x']");
  EXPECT_EQ(failure({"--batch_size=8", "x", "y"}).line, begin + "['x', 'y']");
  EXPECT_EQ(failure({"--eval=true", "x"}).line, begin + "['x']");
  EXPECT_EQ(failure({"x", "--eval", "False"}).line,
            begin + "['x', 'False']; a boolean is written --eval, --noeval or --eval=false");
  std::vector<std::string> positional;
  const FlagValues values = parse_flags(table_, {"a", "--eval", "b", "--", "--clip=1", "c"}, positional);
  EXPECT_EQ(positional, (std::vector<std::string>{"a", "b", "--clip=1", "c"}));
  EXPECT_TRUE(values.boolean("eval"));
  EXPECT_FALSE(values.given("clip"));
}

// A file may repeat defaults.
TEST_F(FlagsParse, AFileIsWarnedOfWhatItChanges) {
  FlagValues values(table_);
  values.set("barrier", "false", FlagSource::kFile);
  EXPECT_TRUE(flag_warnings(values).empty());
  values.set("barrier", "true", FlagSource::kFile);
  EXPECT_EQ(flag_warnings(values), std::vector<std::string>{"--barrier has no effect here: barriers are ours"});
}

}  // namespace
}  // namespace trainyard::core::flags_parse_test
