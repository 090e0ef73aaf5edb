#include "trainyard/train/fit/fit_state.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train::fit_state_test {
namespace {

using ::testing::HasSubstr;

class Steps : public Trainer {
 public:
  explicit Steps(int64_t done = 0) {
    if (done > 0) train({.steps_per_epoch = done});
  }

 protected:
  void run_step(StepView&) override {}
};

nn::Graph graph_of(const std::string& name, int64_t outputs = 2) {
  nn::GraphBuilder b({.image = {3, 4, 5}, .name = name});
  return b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = outputs}));
}

ModelDescription described(std::vector<std::string> classes = {"cat", "dog"}) {
  return {
      .name = "small", .transform = "", .num_classes = 2, .classes = std::move(classes), .graph = graph_of("small")};
}

core::MemoryState saved(const ModelDescription& description, int64_t done = 4, int64_t steps_per_epoch = 6) {
  core::MemoryState state;
  Steps trainer(done);
  FitState(trainer, description, steps_per_epoch).save(state);
  return state;
}

// Loads the state into a training of this description; returns what is said, and expects nothing to be changed by it.
std::string refusal(const core::StateReader& state, const ModelDescription& now, int64_t steps_per_epoch = 6) {
  Steps trainer(1);
  FitState own(trainer, now, steps_per_epoch);
  const std::string said = core::message_of([&] { own.load(state); });
  EXPECT_EQ(trainer.global_step(), said == "no error" ? 4 : 1);
  return said;
}

const std::string kRemedy = "; choose another train_dir, or train what this one holds";

TEST(FitState, IsTheTrainersStateWithTheDescriptionAndTheStepsOfAnEpoch) {
  const core::MemoryState state = saved(described());
  const core::StateReader& reader = state;
  EXPECT_EQ(reader.integer("trainer/global_step"), 4);
  EXPECT_EQ(reader.integer("fit/steps_per_epoch"), 6);
  EXPECT_EQ(saved_metadata(reader), metadata_of(described()));
  EXPECT_EQ(refusal(reader, described()), "no error");
}

TEST(FitState, ThatFitHasNotSavedIsRefused) {
  core::MemoryState state;
  Steps(3).save(state);
  EXPECT_EQ(
      refusal(state, described()),
      "the checkpoint was not saved by fit(): the checkpoint: expected one of fit(), got one of another training" +
          kRemedy);
}

TEST(FitState, OfGraphsWithTheSameNodesAndOtherNamesIsRefused) {
  ModelDescription other = described();
  other.graph = graph_of("larger");
  EXPECT_EQ(refusal(saved(described()), other),
            "the checkpoint is of a graph with other attributes or outputs: the checkpoint: expected graph small, got "
            "graph larger" +
                kRemedy);
  other.graph = graph_of("small", 3);
  other.num_classes = 3;
  const std::string said = refusal(saved(described()), other);
  EXPECT_THAT(said, HasSubstr("the checkpoint is of another graph: the checkpoint: expected linear 'fc' "));
  EXPECT_THAT(said, HasSubstr("[2], got linear 'fc' "));
}

TEST(FitState, WithAGraphIsNoneOfACustomLayer) {
  ModelDescription custom = described();
  custom.graph.reset();
  const std::string problem = "the checkpoint is of another graph: the checkpoint: ";
  EXPECT_EQ(refusal(saved(described()), custom), problem + "expected no custom layer, got a custom layer" + kRemedy);
  EXPECT_EQ(refusal(saved(custom), described()), problem + "expected a custom layer, got no custom layer" + kRemedy);
  EXPECT_EQ(refusal(saved(custom), custom), "no error");
}

TEST(FitState, OfOtherClassesOrEpochsIsRefused) {
  const std::string said = refusal(saved(described()), described({"cat", "emu"}));
  EXPECT_THAT(said, HasSubstr("the checkpoint is of other classes: the checkpoint: expected "));
  EXPECT_LT(said.find("dog"), said.find(", got ")) << said;
  EXPECT_GT(said.find("emu"), said.find(", got ")) << said;
  EXPECT_EQ(refusal(saved(described()), described(), 7),
            "the checkpoint is of a training with epochs of another length: the checkpoint: expected 6 steps, got 7 "
            "steps; train with the batch size, the replicas, the data and the steps_per_epoch that it had, or choose "
            "another train_dir");
}

// Earlier releases did not save the length of an epoch.
TEST(FitState, WithoutTheStepsOfAnEpochFitsAnyOfThem) {
  const core::MemoryState whole = saved(described());
  core::MemoryState earlier;
  for (const std::string& name : whole.names()) {
    if (name != "fit/steps_per_epoch") whole.copy(name, earlier, name);
  }
  EXPECT_EQ(refusal(earlier, described(), 7), "no error");
}

}  // namespace
}  // namespace trainyard::train::fit_state_test
