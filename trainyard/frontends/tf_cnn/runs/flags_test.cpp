#include "trainyard/frontends/tf_cnn/flags.h"

#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/golden.h"

namespace trainyard::frontends::flags_test {
namespace {

using core::Disposition;
using core::FlagSpec;

// A row of upstream_flags.tsv, which tools/golden/flags_from_spec.py makes from the specification.
struct UpstreamFlag {
  std::string name, kind, default_text, lower, upper, choices;
};

std::vector<UpstreamFlag> upstream_flags() {
  const std::string path = core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/frontends/testdata/upstream_flags.tsv");
  std::istringstream lines(core::local_file_system().read_file(path));
  std::vector<UpstreamFlag> flags;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    UpstreamFlag flag;
    for (std::string* cell : {&flag.name, &flag.kind, &flag.default_text, &flag.lower, &flag.upper, &flag.choices}) {
      std::getline(cells, *cell, '\t');
    }
    flags.push_back(flag);
  }
  return flags;
}

std::string bound_text(const std::optional<double>& bound) {
  return bound ? fmt::format("{}", *bound) : "";
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, "|"));
}

TEST(BenchmarkFlags, DeclareTheUpstreamTable) {
  const std::vector<UpstreamFlag> upstream = upstream_flags();
  ASSERT_EQ(upstream.size(), 138u);
  for (const UpstreamFlag& flag : upstream) {
    SCOPED_TRACE(flag.name);
    const FlagSpec* spec = tf_cnn_flags().find(flag.name);
    ASSERT_NE(spec, nullptr);
    EXPECT_EQ(core::flag_kind_name(spec->kind), flag.kind);
    if (flag.default_text == "None") {
      EXPECT_TRUE(std::holds_alternative<std::monostate>(spec->default_value));
    } else {
      EXPECT_EQ(spec->default_value, core::parse_flag_value(*spec, flag.default_text));
    }
    EXPECT_EQ(bound_text(spec->lower_bound), flag.lower);
    EXPECT_EQ(bound_text(spec->upper_bound), flag.upper);
    // Values of ours come behind theirs.
    EXPECT_TRUE(joined(spec->choices).starts_with(flag.choices)) << flag.name << ": " << joined(spec->choices);
  }
}

TEST(BenchmarkFlags, AreDocumented) {
  for (const FlagSpec& spec : tf_cnn_flags().all()) {
    EXPECT_FALSE(spec.help.empty()) << spec.name;
    EXPECT_FALSE(spec.group_name.empty()) << spec.name;
    EXPECT_EQ(spec.note.empty(), spec.disposition == Disposition::kImplemented) << spec.name;
  }
}

// A value of the flag's kind that is not its default.
std::string another_value(const FlagSpec& spec) {
  switch (spec.kind) {
    case core::FlagKind::kBoolean:
      return spec.default_value == core::FlagValue(true) ? "false" : "true";
    case core::FlagKind::kInteger:
      return spec.default_value == core::FlagValue(int64_t{7}) ? "8" : "7";
    case core::FlagKind::kReal:
      return fmt::format("{}", spec.lower_bound.value_or(0) + 1.0 / 3);
    case core::FlagKind::kText:
      return "a: \"text\" # with \\ signs";
    case core::FlagKind::kChoice:
      return spec.default_value == core::FlagValue(spec.choices[0]) ? spec.choices[1] : spec.choices[0];
    case core::FlagKind::kList:
      return "1,2.5,3";
  }
  return "";
}

TEST(BenchmarkFlags, OnlyTheFlagsOfOtherRuntimesWarn) {
  const std::set<std::string> expected = {
      "timestamped_allocator", "gpu_kt_max_interval",  "gpu_kt_max_bytes", "gpu_kt_max_pending",    "sync_on_finish",
      "force_gpu_compatible",  "use_python32_barrier", "debugger",         "allreduce_merge_scope", "server_protocol"};
  std::set<std::string> warned;
  for (const FlagSpec& spec : tf_cnn_flags().all()) {
    if (spec.disposition == Disposition::kWarned) warned.insert(spec.name);
  }
  EXPECT_EQ(warned, expected);
}

TEST(BenchmarkFlags, TheReferencePageIsCurrent) {
  EXPECT_TRUE(core::matches_golden(tf_cnn_flags_page(), "docs/flags.md"));
}

TEST(BenchmarkFlags, DialectsHaveTheSameFlagsAndOtherDefaults) {
  const core::FlagTable& own = tf_cnn_flags(Dialect::kTrainyard);
  EXPECT_EQ(own.names(), tf_cnn_flags(Dialect::kTfCnnBenchmarks).names());
  EXPECT_FALSE(core::FlagValues(tf_cnn_flags(Dialect::kTfCnnBenchmarks)).boolean("eval_exact"));
  EXPECT_TRUE(core::FlagValues(own).boolean("eval_exact"));
  EXPECT_EQ(core::FlagValues(tf_cnn_flags(Dialect::kTfCnnBenchmarks)).text("on_nan"), "ignore");
  EXPECT_EQ(core::FlagValues(own).text("on_nan"), "stop");
  EXPECT_FALSE(core::parse_flags(own, {"--eval_exact=false"}).boolean("eval_exact"));
}

TEST(BenchmarkFlags, EveryFlagSurvivesDumpAndRead) {
  const std::string path = core::join_path(::testing::TempDir(), fmt::format("all_flags_{}.yaml", ::getpid()));
  for (const FlagSpec& changed : tf_cnn_flags().all()) {
    if (changed.name == "config" || changed.name == "dump_config") continue;
    core::FlagValues values(tf_cnn_flags());
    values.set(changed.name, another_value(changed), core::FlagSource::kCommandLine);
    ASSERT_TRUE(values.changed(changed.name)) << changed.name;
    const auto file = core::local_file_system().open_write(path);
    file->write(core::dump_config(values));
    file->close();
    core::FlagValues again(tf_cnn_flags());
    core::read_config_file(path, again);
    for (const FlagSpec& spec : tf_cnn_flags().all()) {
      ASSERT_EQ(again.value(spec.name), values.value(spec.name)) << spec.name << " after changing " << changed.name;
    }
  }
  core::local_file_system().remove_file(path);
}

TEST(BenchmarkFlags, AWordSurvivesDumpAndRead) {
  const std::string path = core::join_path(::testing::TempDir(), fmt::format("word_{}.yaml", ::getpid()));
  const core::FlagValues values = core::parse_flags(tf_cnn_flags(), {"--batch_size=auto"});
  const auto file = core::local_file_system().open_write(path);
  file->write(core::dump_config(values, true));
  file->close();
  core::FlagValues again(tf_cnn_flags());
  core::read_config_file(path, again);
  EXPECT_TRUE(again.is_word("batch_size"));
  EXPECT_EQ(again.value("batch_size"), core::FlagValue(std::string("auto")));
  core::local_file_system().remove_file(path);
}

TEST(BenchmarkFlags, DefaultsWarnOfNothing) {
  EXPECT_TRUE(core::flag_warnings(core::FlagValues(tf_cnn_flags())).empty());
}

}  // namespace
}  // namespace trainyard::frontends::flags_test
