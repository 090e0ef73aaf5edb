#include "trainyard/train/session/start_facts.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::train::start_facts_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(StartFacts, FlagsCountButForThoseThatMayDiffer) {
  StartFacts facts;
  add_flag_facts({{"batch_size", int64_t{32}}, {"train_dir", std::string("out")}, {"eval", true}}, facts);
  EXPECT_EQ(facts, (StartFacts{{"--batch_size", "32"}, {"--eval", "true"}}));
}

TEST(StartFacts, AGraphIsItsLayersParametersAndBuffers) {
  nn::GraphBuilder b({.image = {3, 8, 8}, .name = "tiny"});
  const auto x = b.batch_norm("norm", b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3}));
  const nn::Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
  StartFacts facts;
  add_graph_facts(graph, facts);
  EXPECT_THAT(facts, Contains(parallel::StartFact{"parameter fc.weight", "[5, 4]"}));
  EXPECT_THAT(facts, Contains(parallel::StartFact{"buffer norm.running_mean", "[4]"}));
  const auto conv =
      std::find_if(facts.begin(), facts.end(), [](const auto& f) { return f.item == "layer conv of the model"; });
  ASSERT_NE(conv, facts.end());
  EXPECT_THAT(conv->value, HasSubstr("convolution"));
  EXPECT_THAT(conv->value, HasSubstr("3x3"));
}

TEST(StartFacts, TheProgramIsItsVersionAndInstructions) {
  StartFacts facts;
  add_program_facts(facts);
  ASSERT_EQ(facts.size(), 3U);
  for (const auto& [item, value] : facts) EXPECT_NE(value, "") << item;
}

}  // namespace
}  // namespace trainyard::train::start_facts_test
