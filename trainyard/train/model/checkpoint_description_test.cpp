// What a checkpoint without a description says of its model.
#include "trainyard/train/model/checkpoint_description.h"

#include <functional>
#include <string>

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph_text.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::train::checkpoint_description_test {
namespace {

using ::testing::ElementsAre, ::testing::IsEmpty;

// A state of one tensor, and what `add` writes.
class SavedFacts : public core::Stateful {
 public:
  explicit SavedFacts(std::function<void(core::StateWriter&)> add) : add_(std::move(add)) {}
  void save(core::StateWriter& writer) const override {
    writer.tensor("model/fc.bias", at::ones({4}));
    if (add_) add_(writer);
  }
  void load(const core::StateReader&) override {}

 private:
  std::function<void(core::StateWriter&)> add_;
};

ModelDescription described(const CheckpointIdentity& identity, std::function<void(core::StateWriter&)> add = {}) {
  const core::TempDir temp;
  CheckpointStore(temp.file("run")).save(3, identity, SavedFacts(std::move(add)));
  return described_by(open_newest_checkpoint(temp.file("run"), nullptr));
}

const CheckpointIdentity kLenet{.model = "lenet", .dataset = "imagenet", .num_classes = 4};

TEST(CheckpointDescription, NamesOfRecordsAreThoseOfTheirOutputs) {
  const auto names = [](const std::string& lines) {
    const ModelDescription said =
        described(kLenet, [&](core::StateWriter& writer) { writer.text("input/label_texts", lines); });
    EXPECT_EQ(said.first_output, 0);
    EXPECT_TRUE(said.classes_of_records);
    return said.classes;
  };
  EXPECT_THAT(names("partial\n0 cat\n2 big dog\n"), ElementsAre("cat", "", "big dog"));
  EXPECT_THAT(names("complete\n3 emu\n"), ElementsAre("", "", "", "emu"));
  EXPECT_THAT(names("complete\n0 cat\n"), ElementsAre("cat"));
}

TEST(CheckpointDescription, NamesOfTheDataSetComeBeforeThoseOfRecords) {
  const ModelDescription said = described(kLenet, [](core::StateWriter& writer) {
    save_classes({"ape", "bee"}, 1, writer);
    writer.text("input/label_texts", "partial\n0 cat\n2 dog\n");
  });
  EXPECT_THAT(said.classes, ElementsAre("ape", "bee"));
  EXPECT_EQ(said.first_output, 1);
  EXPECT_FALSE(said.classes_of_records);
}

TEST(CheckpointDescription, IsOfTheRegisteredModel) {
  const ModelDescription said = described(kLenet, [](core::StateWriter& writer) {
    writer.integer("data/input/height", 24);
    writer.integer("data/input/width", 28);
    save_label_sets(writer);
  });
  EXPECT_EQ(said.name, "lenet");
  EXPECT_EQ(said.transform, "imagenet");
  EXPECT_EQ(said.num_classes, 4);
  EXPECT_TRUE(said.label_sets);
  EXPECT_THAT(said.classes, IsEmpty());
  EXPECT_FALSE(said.classes_of_records);
  EXPECT_FALSE(said.input->training);
  EXPECT_EQ(said.input->resize_method, "bilinear");
  EXPECT_EQ(nn::graph_text(*said.graph),
            nn::graph_text(models::build_model("lenet", "imagenet", {.num_classes = 4, .image_size = {24, 28}})));

  const ModelDescription least = described({.model = "lenet", .num_classes = 1});
  EXPECT_EQ(least.transform, "imagenet");
  EXPECT_EQ(least.num_classes, 1);
  EXPECT_FALSE(least.label_sets);
  EXPECT_EQ(nn::graph_text(*least.graph), nn::graph_text(models::build_model("lenet", "imagenet", {.num_classes = 1})));
  const ModelDescription small = described({.model = "resnet20", .dataset = "cifar10", .num_classes = 10});
  EXPECT_EQ(small.transform, "cifar10");
  EXPECT_EQ(small.graph->input_shape(), (nn::Shape{3, 32, 32}));
}

TEST(CheckpointDescription, WithoutAModelThereIsNone) {
  for (const CheckpointIdentity& identity :
       {CheckpointIdentity{.dataset = "imagenet", .num_classes = 4}, CheckpointIdentity{.model = "lenet"}}) {
    const ModelDescription said = described(identity);
    EXPECT_EQ(said.name, "");
    EXPECT_EQ(said.num_classes, 0);
    EXPECT_FALSE(said.graph.has_value());
    EXPECT_FALSE(said.input.has_value());
  }
}

TEST(CheckpointDescription, TextsOfADescriptionComeFirst) {
  const ModelDescription said = described(kLenet, [](core::StateWriter& writer) {
    save_metadata({{"trainyard.model", "other"}, {"trainyard.num_classes", "7"}}, writer);
  });
  EXPECT_EQ(said.name, "other");
  EXPECT_EQ(said.num_classes, 7);
  EXPECT_FALSE(said.graph.has_value());
}

}  // namespace
}  // namespace trainyard::train::checkpoint_description_test
