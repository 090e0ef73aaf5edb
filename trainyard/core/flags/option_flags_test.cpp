#include "trainyard/core/flags/option_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/flags_table.h"

namespace trainyard::core::option_flags_test {
namespace {

enum class Kind { kPlain, kFancy };

struct Inner {
  float part = 0.25F;
};

struct Options {
  bool on = true;
  std::optional<bool> maybe{};
  int count = 3;
  std::optional<int64_t> bytes{};
  double rate = 0.5;
  std::string folder{}, mode = "fast";
  std::optional<std::string> name{};
  std::optional<float> share{};
  std::vector<std::string> layers{};
  Kind kind = Kind::kFancy;
  Inner inner{};
  bool checked = false;
};

const OptionFlags<Options>& flags() {
  static const OptionFlags<Options> all = [] {
    OptionFlags<Options> f("First");
    f.add("on", &Options::on, "whether it is on");
    f.add("maybe", &Options::maybe, "");
    f.add("count", &Options::count, "").bounds(1, 9);
    f.table().boolean("nothing", false, "sets nothing").group(f.group());
    f.group("Second");
    f.add("rate", &Options::rate, "");
    f.add("folder", &Options::folder, "");
    f.add("name", &Options::name, "");
    f.given(&Options::share, f.table().real("share", 0.1, "")).bounds(0, 1);
    f.add("layers", &Options::layers, "");
    f.add(
        "part", [](Options& o) -> float& { return o.inner.part; }, "");
    f.choice("mode", &Options::mode, {"slow", "fast"}, "");
    f.choice("kind", &Options::kind,
             std::vector<std::pair<std::string, Kind>>{{"plain", Kind::kPlain}, {"fancy", Kind::kFancy}}, "");
    f.table().integer("mib", std::nullopt, "").group(f.group());
    f.also([](const FlagValues& values, Options& o) {
      if (const auto mib = values.optional_integer("mib")) o.bytes = *mib << 20;
      o.checked = o.kind == Kind::kPlain;  // which is read by now
    });
    return f;
  }();
  return all;
}

FlagTable table() {
  FlagTable all;
  all.boolean("before", false, "").group("First");
  flags().declare(all);
  return all;
}

Options read(const std::vector<std::string>& arguments) {
  static const FlagTable all = table();
  return flags().read(parse_flags(all, arguments));
}

TEST(OptionFlags, DeclareInTheirOrderWithTheMembersDefaults) {
  const FlagTable all = table();
  EXPECT_THAT(all.names(), testing::ElementsAre("before", "on", "maybe", "count", "nothing", "rate", "folder", "name",
                                                "share", "layers", "part", "mode", "kind", "mib"));
  EXPECT_EQ(all.find("on")->default_value, FlagValue(true));
  EXPECT_EQ(all.find("on")->help, "whether it is on");
  EXPECT_EQ(all.find("maybe")->default_value, FlagValue());
  EXPECT_EQ(all.find("maybe")->kind, FlagKind::kBoolean);
  EXPECT_EQ(all.find("count")->default_value, FlagValue(int64_t{3}));
  EXPECT_EQ(all.find("count")->upper_bound, 9);
  EXPECT_EQ(all.find("rate")->default_value, FlagValue(0.5));
  EXPECT_EQ(all.find("folder")->default_value, FlagValue()) << "empty is not set";
  EXPECT_EQ(all.find("share")->default_value, FlagValue(0.1));
  EXPECT_EQ(all.find("share")->group_name, "Second");
  EXPECT_EQ(all.find("layers")->kind, FlagKind::kList);
  EXPECT_EQ(all.find("part")->default_value, FlagValue(0.25));
  EXPECT_EQ(all.find("mode")->default_value, FlagValue(std::string("fast")));
  EXPECT_EQ(all.find("kind")->default_value, FlagValue(std::string("fancy")));
  EXPECT_THAT(all.find("kind")->choices, testing::ElementsAre("plain", "fancy"));
  EXPECT_EQ(all.find("nothing")->group_name, "First");
  EXPECT_EQ(all.find("rate")->group_name, "Second");
}

TEST(OptionFlags, ReadTheDefaultsWhereNothingIsGiven) {
  const Options options = read({});
  EXPECT_TRUE(options.on);
  EXPECT_EQ(options.maybe, std::nullopt);
  EXPECT_EQ(options.count, 3);
  EXPECT_EQ(options.rate, 0.5);
  EXPECT_EQ(options.folder, "");
  EXPECT_EQ(options.name, std::nullopt);
  EXPECT_EQ(options.share, std::nullopt);
  EXPECT_EQ(options.mode, "fast");
  EXPECT_EQ(options.kind, Kind::kFancy);
  EXPECT_EQ(options.bytes, std::nullopt);
  EXPECT_FALSE(options.checked);
}

TEST(OptionFlags, ReadADefaultThatIsAskedFor) {
  EXPECT_EQ(read({"--share=0.1"}).share, 0.1F);
}

TEST(OptionFlags, ReadWhatIsGiven) {
  const Options options = read({"--noon", "--maybe", "--count=7", "--rate=0.125", "--folder=x", "--name=y",
                                "--layers=a,b", "--part=0.5", "--mode=slow", "--kind=plain", "--mib=2"});
  EXPECT_FALSE(options.on);
  EXPECT_EQ(options.maybe, true);
  EXPECT_EQ(options.count, 7);
  EXPECT_EQ(options.rate, 0.125);
  EXPECT_EQ(options.folder, "x");
  EXPECT_EQ(options.name, "y");
  EXPECT_THAT(options.layers, testing::ElementsAre("a", "b"));
  EXPECT_EQ(options.inner.part, 0.5F);
  EXPECT_EQ(options.mode, "slow");
  EXPECT_EQ(options.kind, Kind::kPlain);
  EXPECT_EQ(options.bytes, 2 << 20);
  EXPECT_TRUE(options.checked);
}

// A program that gives a table another default, as `trainyard train` does, reads that one.
TEST(OptionFlags, ReadTheDefaultsOfTheTable) {
  FlagTable all = table();
  all.set_default("rate", "0.75");
  EXPECT_EQ(flags().read(FlagValues(all)).rate, 0.75);
}

}  // namespace
}  // namespace trainyard::core::option_flags_test
