#include "trainyard/train/profile/tf_profile.h"

#include <chrono>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::train::tf_profile_test {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;

TEST(TfProfile, HasEachLayerItsBackwardAndTheParts) {
  nn::GraphBuilder b({.image = {3, 4, 4}, .name = "net"});
  const auto conv = b.convolution("conv", b.input(), {.out_channels = 2, .kernel = 1});
  const nn::Graph graph = b.build(b.linear("fc", b.flatten("flat", b.activation("relu", conv)), {.out_features = 5}));
  const auto begin = RecordClock::now();
  const auto node = [&](std::vector<int> nodes, nn::NodeRun::Phase phase, int from, int to) {
    return NodeRecord{.nodes = std::move(nodes),
                      .phase = phase,
                      .kernel = "k",
                      .begin = begin + microseconds(from),
                      .end = begin + microseconds(to)};
  };
  using Phase = nn::NodeRun::Phase;
  StepRecord step;
  step.trainer.parts = {{StepPart::kInput, begin, begin + microseconds(5)},
                        {StepPart::kStep, begin, begin + microseconds(500)}};
  step.replicas.resize(2);
  step.replicas[0].nodes = {node({1, 2}, Phase::kForward, 10, 40), node({}, Phase::kForward, 40, 41),
                            node({1, 2}, Phase::kBackward, 60, 100)};
  step.replicas[1].nodes = {node({1, 2}, Phase::kForward, 12, 32)};
  const std::vector<StepRecord> steps = {step, step};
  const formats::TfProfile profile = tf_profile(steps, graph, 7);
  EXPECT_THAT(profile.steps, ElementsAre(0, 1));
  std::vector<std::string> names;
  for (const auto& each : profile.nodes) names.push_back(each.name);
  EXPECT_THAT(names, ElementsAre("input", "conv", "relu", "flat", "fc", "gradients/conv", "step/input"));
  const formats::TfProfileNode& forward = profile.nodes[1];
  EXPECT_EQ(forward.op, "convolution");
  EXPECT_THAT(forward.inputs, ElementsAre(0));
  EXPECT_THAT(forward.shape, ElementsAre(7, 2, 4, 4));
  EXPECT_EQ(forward.float_ops, 7 * 2 * 3 * 2 * 4 * 4) << "two a multiply-accumulate";
  ASSERT_EQ(forward.executions.size(), 2U);
  const std::vector<formats::TfExecution>& runs = forward.executions.at(0);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].duration_us, 30);
  EXPECT_EQ(runs[1].duration_us, 20);
  EXPECT_EQ(runs[1].start_us - runs[0].start_us, 2);
  EXPECT_TRUE(runs[1].device.ends_with("device:CPU:1"));
  EXPECT_EQ(profile.nodes[5].id, 5 + 1);
  EXPECT_EQ(profile.nodes[5].executions.at(1).front().duration_us, 40);
  EXPECT_EQ(profile.nodes[6].executions.at(0).front().duration_us, 5);
  EXPECT_TRUE(profile.nodes[2].executions.empty()) << "its time is its convolution's";
}

// What a layer's backward takes from its forward, and the numbers of nodes that are no layers.
TEST(TfProfile, BackwardAndPartsAreNodesOfTheirOwn) {
  nn::GraphBuilder b({.image = {3, 4, 6}, .name = "net"});
  const auto conv = b.convolution("conv", b.input(), {.out_channels = 2, .kernel = 1});
  const nn::Graph graph = b.build(b.linear("fc", b.flatten("flat", conv), {.out_features = 5}));
  const auto begin = RecordClock::now();
  StepRecord step;
  step.trainer.parts.push_back({StepPart::kInput, begin, begin + microseconds(5)});
  step.replicas.resize(1);
  step.replicas[0].nodes.push_back({.nodes = {1},
                                    .phase = nn::NodeRun::Phase::kBackward,
                                    .kernel = "k",
                                    .begin = begin,
                                    .end = begin + microseconds(40)});
  step.replicas[0].parts.push_back({StepPart::kUpdate, begin, begin + microseconds(7)});
  const std::vector<StepRecord> steps = {step};
  const formats::TfProfile profile = tf_profile(steps, graph, 7);
  ASSERT_EQ(profile.nodes.size(), 4U + 1U + 2U);
  const formats::TfProfileNode &forward = profile.nodes[1], &backward = profile.nodes[4], &input = profile.nodes[5],
                               &update = profile.nodes[6];
  EXPECT_THAT(forward.shape, ElementsAre(7, 2, 4, 6));
  EXPECT_TRUE(forward.device.empty()) << "it did not run";
  EXPECT_EQ(backward.name, "gradients/conv");
  EXPECT_EQ(backward.op, "convolution_gradient");
  EXPECT_EQ(backward.id, 4 + 1);
  EXPECT_THAT(backward.inputs, ElementsAre(1));
  EXPECT_EQ(backward.float_ops, 2 * forward.float_ops);
  EXPECT_TRUE(backward.device.ends_with("device:CPU:0"));
  EXPECT_EQ(input.op, "input");
  EXPECT_EQ(input.id, 2 * 4);
  EXPECT_EQ(update.name, "step/update");
  EXPECT_EQ(update.id, 2 * 4 + 1);
  EXPECT_EQ(update.executions.at(0).front().duration_us, 7);
}

}  // namespace
}  // namespace trainyard::train::tf_profile_test
