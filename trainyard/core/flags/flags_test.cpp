#include "trainyard/core/flags/flags.h"

#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/flags_table.h"

namespace trainyard::core::flags_test {
namespace {

TEST(FlagTable, KeepsTheOrderOfDeclarationAndFindsByName) {
  const FlagTable table = small_table();
  EXPECT_EQ(table.names().front(), "eval");
  EXPECT_EQ(table.find("momentum")->kind, FlagKind::kReal);
  EXPECT_EQ(table.find("nothing"), nullptr);
}

TEST(FlagTable, RefusesMistakesOfTheDeclaration) {
  FlagTable table;
  table.boolean("eval", false, "");
  EXPECT_EQ(flag_error_of([&] { table.integer("eval", 1, ""); }).code, "internal");
  EXPECT_EQ(flag_error_of([&] { table.integer("eval", 1, ""); }).line, "flag eval is declared twice");
  table.integer("steps", 1, "");
  EXPECT_EQ(flag_error_of([&] { table.suggest("evil", "nothing"); }).line,
            "flag nothing is suggested but not declared");
  EXPECT_EQ(flag_error_of([&] { table.suggest("steps", "eval"); }).line,
            "flag steps is declared, and eval is suggested for it");
  EXPECT_EQ(flag_error_of([&] {
              table.choice("device", "tpu", {"cpu", "gpu"}, "");
            }).problem,
            "Param device of value tpu is not in ('cpu', 'gpu')");
}

TEST(FlagTable, ARenamedChoiceIsTakenByItsFormerName) {
  FlagTable table;
  table.choice("mode", "fast", {"slow", "quick", "fast"}, "");
  table.rename_value("mode", "quick", "fast");
  table.set_automatic("mode", "slow on one core");
  EXPECT_EQ(table.find("mode")->choices, (std::vector<std::string>{"slow", "fast"}));
  EXPECT_EQ(table.find("mode")->automatic_rule, "slow on one core");
  FlagValues values(table);
  testing::internal::CaptureStderr();
  values.set("mode", "quick", FlagSource::kCommandLine);
  testing::internal::GetCapturedStderr();  // that the choice has another name now
  EXPECT_EQ(values.text("mode"), "fast");
  EXPECT_TRUE(values.given("mode"));
  EXPECT_EQ(flag_error_of([&] { table.rename_value("made", "quick", "fast"); }).line,
            "flag made gets another choice but is not declared");
  EXPECT_EQ(flag_error_of([&] { table.set_automatic("made", "rule"); }).line,
            "flag made gets a default but is not declared");
}

TEST(FlagValues, ResetForgetsTheValueAndItsSource) {
  const FlagTable table = small_table();
  FlagValues values(table);
  values.set("batch_size", "8", FlagSource::kCommandLine);
  values.set("momentum", "0.5", FlagSource::kCommandLine);
  values.reset("batch_size");
  EXPECT_EQ(values.integer("batch_size"), 0);
  EXPECT_FALSE(values.given("batch_size"));
  EXPECT_DOUBLE_EQ(values.real("momentum"), 0.5);
  values.set("batch_size", "4", FlagSource::kFile);
  EXPECT_EQ(values.integer("batch_size"), 4) << "no stronger source is left";
  EXPECT_EQ(flag_error_of([&] { values.reset("nothing"); }).line, "flag nothing is read but not declared");
}

TEST(FlagValues, StartAtTheDefaults) {
  const FlagTable table = small_table();
  const FlagValues values(table);
  EXPECT_FALSE(values.boolean("eval"));
  EXPECT_EQ(values.integer("batch_size"), 0);
  EXPECT_EQ(values.optional_integer("num_batches"), std::nullopt);
  EXPECT_DOUBLE_EQ(values.real("momentum"), 0.9);
  EXPECT_EQ(values.text("optimizer"), "sgd");
  EXPECT_EQ(values.text("data_dir"), "");
  EXPECT_EQ(values.optional_text("data_dir"), std::nullopt);
  EXPECT_TRUE(values.list("eval_steps").empty());
  EXPECT_FALSE(values.given("eval"));
}

TEST(FlagValues, GivenIsNotChanged) {
  const FlagTable table = small_table();
  FlagValues values(table);
  values.set("momentum", "0.9", FlagSource::kProgram);
  EXPECT_TRUE(values.given("momentum"));
  EXPECT_FALSE(values.changed("momentum"));
  values.set("momentum", "0.8", FlagSource::kProgram);
  EXPECT_TRUE(values.changed("momentum"));
}

TEST(FlagValues, AStrongerSourceStands) {
  const FlagTable table = small_table();
  FlagValues values(table);
  values.set("batch_size", "8", FlagSource::kCommandLine);
  values.set("batch_size", "16", FlagSource::kFile);
  EXPECT_EQ(values.integer("batch_size"), 8);
  EXPECT_EQ(values.source("batch_size"), FlagSource::kCommandLine);
  values.set("batch_size", "32", FlagSource::kProgram);
  EXPECT_EQ(values.integer("batch_size"), 32);
}

TEST(FlagValues, ReadingWronglyIsAnInternalError) {
  const FlagTable table = small_table();
  const FlagValues values(table);
  EXPECT_EQ(flag_error_of([&] { values.integer("momentum"); }).code, "internal");     // another kind
  EXPECT_EQ(flag_error_of([&] { values.integer("num_batches"); }).code, "internal");  // no value
  EXPECT_EQ(flag_error_of([&] { values.boolean("nothing"); }).code, "internal");      // no such flag
}

struct BadValue {
  const char *flag, *text, *problem;
};

class FlagBadValue : public ::testing::TestWithParam<BadValue> {};

TEST_P(FlagBadValue, IsRefusedInTheWordsOfTheFlagReference) {
  const FlagTable table = small_table();
  FlagValues values(table);
  const FlagError thrown =
      flag_error_of([&] { values.set(GetParam().flag, GetParam().text, FlagSource::kCommandLine); });
  EXPECT_EQ(thrown.problem, GetParam().problem);
  EXPECT_EQ(thrown.code, "invalid_argument");
  EXPECT_FALSE(values.given(values.table().find(GetParam().flag) ? GetParam().flag : "eval"));
}

INSTANTIATE_TEST_SUITE_P(
    Values, FlagBadValue,
    ::testing::Values(BadValue{"batch_size", "-1", "Param batch_size value of -1 is lower than the lower bound of 0"},
                      BadValue{"momentum", "1.5", "Param momentum value of 1.5 is higher than the upper bound of 1"},
                      BadValue{"momentum", "-0.1", "Param momentum value of -0.1 is lower than the lower bound of 0"},
                      BadValue{"optimizer", "sdg",
                               "Param optimizer of value sdg is not in ('momentum', 'sgd', 'adam')"},
                      BadValue{"batch_size", "16.0", "Param batch_size value of 16.0 is not an integer"},
                      BadValue{"batch_size", "", "Param batch_size value of '' is not an integer"},
                      BadValue{"batch_size", "12monkeys", "Param batch_size value of 12monkeys is not an integer"},
                      BadValue{"batch_size", "9223372036854775808",
                               "Param batch_size value of 9223372036854775808 is not an integer"},
                      BadValue{"batch_size", "--1", "Param batch_size value of --1 is not an integer"},
                      BadValue{"momentum", "nan", "Param momentum value of nan is not a finite number"},
                      BadValue{"momentum", "inf", "Param momentum value of inf is not a finite number"},
                      BadValue{"momentum", "1e999", "Param momentum value of 1e999 is not a finite number"},
                      BadValue{"eval", "maybe", "Param eval value of maybe is not a boolean"},
                      BadValue{"bath_size", "1", "Unknown flag 'bath_size'"}));

TEST(FlagValue, SuggestsTheNearestNameAndChoice) {
  const FlagTable table = small_table();
  FlagValues values(table);
  EXPECT_EQ(flag_error_of([&] { values.set("bath_size", "1", FlagSource::kProgram); }).line,
            "Unknown flag 'bath_size'; did you mean --batch_size?");
  EXPECT_EQ(flag_error_of([&] { values.set("noevla", "true", FlagSource::kCommandLine); }).line,
            "Unknown flag 'noevla'; did you mean --noeval?");
  EXPECT_EQ(flag_error_of([&] { values.set("noeval", "true", FlagSource::kFile); }).line,
            "Unknown flag 'noeval'; did you mean --eval?");
  EXPECT_EQ(flag_error_of([&] { values.set("optimizer", "momentun", FlagSource::kProgram); }).line,
            "Param optimizer of value momentun is not in ('momentum', 'sgd', 'adam'); did you mean 'momentum'?");
}

TEST(FlagValue, TextReadsBackAsTheSameValue) {
  const FlagTable table = small_table();
  const auto round_trip = [&](const char* flag, const FlagValue& value) {
    EXPECT_EQ(parse_flag_value(*table.find(flag), format_flag_value(value)), value) << format_flag_value(value);
  };
  for (const double value : {0.0, -0.1, 4e-05, 1e-08, 1.0 / 3, 5e-324, std::numeric_limits<double>::max()}) {
    round_trip("clip", value);
  }
  for (const int64_t value : {int64_t{0}, int64_t{-7}, int64_t{4294967296}, std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()}) {
    round_trip("num_batches", value);
  }
  round_trip("eval", true);
  round_trip("eval", false);
  round_trip("data_dir", std::string(" spaces and , commas "));
  round_trip("eval_steps", std::vector<std::string>{"1", "2.5", "x"});
}

TEST(FlagValue, AcceptsTheUsualSpellings) {
  const FlagTable table = small_table();
  EXPECT_EQ(parse_flag_value(*table.find("batch_size"), "0x10"), FlagValue(int64_t{16}));
  EXPECT_EQ(parse_flag_value(*table.find("batch_size"), " +12 "), FlagValue(int64_t{12}));
  EXPECT_EQ(parse_flag_value(*table.find("num_batches"), "-0X1f"), FlagValue(int64_t{-31}));
  EXPECT_EQ(parse_flag_value(*table.find("momentum"), "1e-3"), FlagValue(0.001));
  EXPECT_EQ(parse_flag_value(*table.find("momentum"), "+0.5"), FlagValue(0.5));
  EXPECT_EQ(parse_flag_value(*table.find("momentum"), "1"), FlagValue(1.0));
  for (const char* word : {"true", "True", "T", "1", "yes", "on"}) {
    EXPECT_EQ(parse_flag_value(*table.find("eval"), word), FlagValue(true)) << word;
  }
  for (const char* word : {"false", "FALSE", "f", "0", "no", "off"}) {
    EXPECT_EQ(parse_flag_value(*table.find("eval"), word), FlagValue(false)) << word;
  }
}

TEST(SplitList, TrimsItsParts) {
  EXPECT_EQ(split_list("1, 2 ,3"), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(split_list("  "), std::vector<std::string>{});
  EXPECT_EQ(split_list("1,,2"), (std::vector<std::string>{"1", "", "2"}));
  EXPECT_EQ(quoted_list({"a", "b"}), "['a', 'b']");
}

TEST(FlagValues, SayWhatIsReadWrongly) {
  const FlagTable table = small_table();
  const FlagValues values(table);
  const auto line = [](const std::function<void()>& read) { return flag_error_of(read).line; };
  const std::string kind = " is read as another kind than it was declared";
  EXPECT_EQ(line([&] { values.integer("momentum"); }), "flag momentum" + kind);
  EXPECT_EQ(line([&] { values.real("batch_size"); }), "flag batch_size" + kind);
  EXPECT_EQ(line([&] { values.boolean("optimizer"); }), "flag optimizer" + kind);
  EXPECT_EQ(line([&] { values.list("optimizer"); }), "flag optimizer" + kind);
  EXPECT_EQ(line([&] { values.text("eval"); }), "flag eval" + kind);
  EXPECT_EQ(line([&] { values.integer("num_batches"); }), "flag num_batches is read without a value");
  EXPECT_EQ(line([&] { values.real("clip"); }), "flag clip is read without a value");
  EXPECT_EQ(line([&] { values.boolean("unified"); }), "flag unified is read without a value");
  EXPECT_EQ(line([&] { static_cast<void>(values.source("nothing")); }), "flag nothing is read but not declared");
  FlagTable twice;
  twice.integer("one", 1, "").short_form('o');
  twice.integer("other", 1, "").short_form('o');
  EXPECT_EQ(line([&] { static_cast<void>(twice.find_short('o')); }), "flags one and other both are -o");
  EXPECT_EQ(twice.find_short('x'), nullptr);
  EXPECT_EQ(line([&] { twice.set_default("nothing", "1"); }), "flag nothing gets a default but is not declared");
}

TEST(FlagTable, ADefaultThatIsSetReplacesTheRule) {
  FlagTable table = small_table();
  EXPECT_FALSE(table.find("device")->automatic_rule.empty());
  table.set_default("device", "cpu");
  EXPECT_EQ(table.find("device")->default_value, FlagValue(std::string("cpu")));
  EXPECT_EQ(table.find("device")->automatic_rule, "");
  EXPECT_EQ(table.find("optimizer")->default_value, FlagValue(std::string("sgd")));
}

TEST(FlagTable, AFormerValueIsNotedWithItsFlag) {
  static int runs = 0;  // a process notes a value once
  const std::string former = "former" + std::to_string(runs++);
  FlagTable table;
  table.choice("mode", "fast", {"slow", "fast"}, "").former_value(former, "slow");
  FlagValues values(table);
  testing::internal::CaptureStderr();
  values.set("mode", former, FlagSource::kCommandLine);
  const std::string noted = testing::internal::GetCapturedStderr();
  EXPECT_NE(noted.find(" info --mode '" + former + "' is now called 'slow'\n"), std::string::npos) << noted;
  EXPECT_EQ(values.text("mode"), "slow");
}

TEST(FlagValue, KindsHaveTheNamesOfTheReference) {
  std::string names;
  for (const FlagKind kind :
       {FlagKind::kBoolean, FlagKind::kInteger, FlagKind::kReal, FlagKind::kText, FlagKind::kChoice, FlagKind::kList}) {
    names += std::string(flag_kind_name(kind)) + " ";
  }
  EXPECT_EQ(names, "boolean integer float string enum list ");
  EXPECT_EQ(format_flag_value(FlagValue()), "");
  EXPECT_EQ(quoted_list({}), "[]");
  EXPECT_EQ(quoted_list({"a"}, '(', ')'), "('a')");
  const FlagTable table = small_table();
  for (const char* word : {"t", "y", "Yes", "ON"}) {
    EXPECT_EQ(parse_flag_value(*table.find("eval"), word), FlagValue(true)) << word;
  }
  for (const char* word : {"F", "n", " no ", "Off"}) {
    EXPECT_EQ(parse_flag_value(*table.find("eval"), word), FlagValue(false)) << word;
  }
}

}  // namespace
}  // namespace trainyard::core::flags_test
