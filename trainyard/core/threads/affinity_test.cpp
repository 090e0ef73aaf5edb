#include "trainyard/core/threads/affinity.h"

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/machine.h"

namespace trainyard::core::affinity_test {
namespace {

std::string places(const std::string& affinity, int packages, int cores_each, int threads_each) {
  const ReadText read = reading(server(packages, cores_each, threads_each));
  std::string text;
  for (const CpuList& place : affinity_places(parse_affinity(affinity), cpu_positions(online_cpus(read), read))) {
    text += (text.empty() ? "" : " ") + format_cpu_list(place);
  }
  return text;
}

// Two packages of two cores of two CPUs, as the pictures of the Intel compiler's manual have them; CPU c + 4 is the
// second one of the core of c.
TEST(Affinity, PlacesThreadsAsTheManualSays) {
  EXPECT_EQ(places("granularity=fine,compact", 2, 2, 2), "0 4 1 5 2 6 3 7");
  EXPECT_EQ(places("granularity=fine,compact,0,3", 2, 2, 2), "5 2 6 3 7 0 4 1");
  EXPECT_EQ(places("granularity=fine,compact,1,0", 2, 2, 2), "0 1 2 3 4 5 6 7");
  EXPECT_EQ(places("granularity=fine,scatter", 2, 2, 2), "0 2 1 3 4 6 5 7");
  EXPECT_EQ(places("granularity=thread,scatter,0,1", 2, 2, 2), "2 1 3 4 6 5 7 0");
  EXPECT_EQ(places("granularity=fine,scatter,1", 2, 2, 2), "0 1 2 3 4 5 6 7");
  EXPECT_EQ(places("granularity=fine,scatter,2", 2, 2, 2), "0 4 1 5 2 6 3 7");
}

TEST(Affinity, GranularityJoinsTheCpusOfAPlace) {
  EXPECT_EQ(places("compact", 2, 2, 2), "0,4 1,5 2,6 3,7");
  EXPECT_EQ(places("granularity=core,scatter", 2, 2, 2), "0,4 2,6 1,5 3,7");
  EXPECT_EQ(places("granularity=package,compact", 2, 2, 2), "0-1,4-5 2-3,6-7");
  EXPECT_EQ(places("granularity=socket,compact,0,1", 2, 2, 2), "2-3,6-7 0-1,4-5");
}

TEST(Affinity, LevelsThatTellNothingApartDoNotCount) {
  EXPECT_EQ(places("granularity=fine,compact,1,0", 1, 4, 1), "0 1 2 3");
  EXPECT_EQ(places("granularity=fine,compact,1,0", 2, 2, 1), "0 2 1 3");  // package and core
  EXPECT_EQ(places("granularity=fine,scatter", 4, 1, 1), "0 1 2 3");
  EXPECT_EQ(places("granularity=fine,compact,9", 2, 2, 2), places("granularity=fine,compact,2", 2, 2, 2));
}

// On some machines neighbours in number are CPUs of one core, and the numbers of packages come in turns.
TEST(Affinity, TheOrderIsThatOfPositionsNotOfNumbers) {
  const auto order = [](const std::string& affinity) {
    std::vector<CpuPosition> positions;
    for (int cpu = 0; cpu < 8; ++cpu) {
      positions.push_back({.cpu = cpu, .package = 1 - cpu % 2, .core = 1 - cpu / 2 % 2, .thread = 1 - cpu / 4});
    }
    std::string text;
    for (const CpuList& place : affinity_places(parse_affinity(affinity), positions))
      text += format_cpu_list(place) + " ";
    return text;
  };
  EXPECT_EQ(order("granularity=fine,compact"), "7 3 5 1 6 2 4 0 ");
  EXPECT_EQ(order("granularity=fine,compact,1"), "7 5 6 4 3 1 2 0 ");
  EXPECT_EQ(order("granularity=fine,scatter"), "7 6 5 4 3 2 1 0 ");
}

TEST(Affinity, TakesPlacesFromAList) {
  EXPECT_EQ(places("proclist=[3,0-2:2,{1,5}],explicit", 2, 2, 2), "3 0 2 1,5");
  EXPECT_EQ(places("proclist=[{1,5},3,{0},0-2:2],explicit", 2, 2, 2), "1,5 3 0 0 2");
  EXPECT_EQ(places("granularity=fine,proclist=[7,6],explicit", 2, 2, 2), "7 6");
  try {
    places("proclist=[1,8],explicit", 2, 2, 2);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.detail().expected, "some of CPUs 0-7");
    EXPECT_EQ(error.detail().actual, "8");
  }
}

TEST(Affinity, NoneIsAnywhere) {
  EXPECT_EQ(places("none", 2, 2, 2), "");
  EXPECT_EQ(places("verbose,disabled", 2, 2, 2), "");
}

TEST(Affinity, ReadsModifiers) {
  const Affinity affinity = parse_affinity("verbose,norespect,nowarnings,granularity=fine,compact,2,5");
  EXPECT_TRUE(affinity.verbose);
  EXPECT_FALSE(affinity.respect);
  EXPECT_EQ(affinity.type, Affinity::Type::kCompact);
  EXPECT_EQ(affinity.permute, 2);
  EXPECT_EQ(affinity.offset, 5);
  EXPECT_FALSE(parse_affinity("verbose,noverbose,respect,scatter").verbose);
}

TEST(Affinity, RefusesWhatItDoesNotKnow) {
  for (const char* wrong : {"",
                            "verbose",
                            "compact,1,0,2",
                            "1,compact",
                            "compact,-1",
                            "compact,verbose",
                            "balanced",
                            "logical,3",
                            "Compact",
                            "none,1",
                            "granularity=tile,compact",
                            "granularity=,compact",
                            "explicit",
                            "proclist=[0],compact",
                            "proclist=0,explicit",
                            "proclist=[],explicit",
                            "proclist=[3-1],explicit",
                            "proclist=[0:2],explicit",
                            "proclist=[0-2:0],explicit",
                            "proclist=[{}],explicit",
                            "proclist=[0,explicit",
                            "compact,1,",
                            "proclist=[0],explicit,1",
                            "proclist=[0-65536],explicit",
                            "proclist=[0-9:2147483647],explicit",
                            "compact,99999999999"}) {
    EXPECT_THROW(parse_affinity(wrong), Error) << wrong;
  }
}

TEST(Affinity, SaysWhichPartIsWrongAndWhatItMayBe) {
  constexpr const char* kProclist = "CPUs as in proclist=[0,4-6:2,{1,2}]";
  constexpr const char* kTypes = "one of compact, scatter, explicit, none and disabled";
  const struct {
    std::string text, part, expected;
  } cases[] = {{"granularity=tile,compact", "tile", "granularity=fine, thread, core, package or socket"},
               {"proclist=0,explicit", "0", kProclist},
               {"proclist=[1,3-2],explicit", "3-2", kProclist},
               {"proclist=[1,{x}],explicit", "{x}", kProclist},
               {"compact,1,0,2", "2", "two numbers at most behind the type"},
               {"verbose,balanced", "balanced", std::string("a modifier, or ") + kTypes},
               {"verbose,respect", "verbose,respect", kTypes},
               {"none,1", "none,1", "numbers behind compact and scatter only"},
               {"verbose,explicit", "verbose,explicit", "proclist with the type explicit, and only with it"}};
  for (const auto& each : cases) {
    EXPECT_EQ(message_of([&] { parse_affinity(each.text); }),
              "the placement of threads is not understood: '" + each.part + "' in '" + each.text + "': expected " +
                  each.expected + "; for example granularity=fine,compact,1,0; see docs/howto/place_threads.md");
  }
}

// Two packages of one core of two CPUs each: the level of the cores tells nothing apart.
TEST(Affinity, ALevelBetweenTwoOthersMayBeLeftOut) {
  EXPECT_EQ(places("granularity=fine,compact", 2, 1, 2), "0 2 1 3");
  EXPECT_EQ(places("granularity=fine,compact,1", 2, 1, 2), "0 1 2 3");
  EXPECT_EQ(places("granularity=fine,scatter", 2, 1, 2), "0 1 2 3");
  EXPECT_EQ(places("granularity=fine,scatter,1", 2, 1, 2), "0 2 1 3");
  EXPECT_EQ(places("granularity=core,compact", 2, 1, 2), "0,2 1,3");
  EXPECT_EQ(places("granularity=fine,compact", 1, 2, 2), "0 2 1 3");
  EXPECT_EQ(places("granularity=fine,scatter", 1, 2, 2), "0 1 2 3");
}

TEST(Affinity, HasDefaults) {
  const Affinity affinity = parse_affinity("scatter");
  EXPECT_FALSE(affinity.verbose);
  EXPECT_TRUE(affinity.respect);
  EXPECT_EQ(affinity.type, Affinity::Type::kScatter);
  EXPECT_EQ(affinity.granularity, Affinity::Granularity::kCore);
  EXPECT_EQ(affinity.permute, 0);
  EXPECT_EQ(affinity.offset, 0);
  EXPECT_TRUE(affinity.places.empty());
  EXPECT_TRUE(parse_affinity("warnings,norespect,respect,compact,1").respect);
  EXPECT_EQ(parse_affinity("compact,3").permute, 3);
  EXPECT_EQ(parse_affinity("compact,3").offset, 0);
}

}  // namespace
}  // namespace trainyard::core::affinity_test
