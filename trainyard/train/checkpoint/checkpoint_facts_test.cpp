#include "trainyard/train/checkpoint/checkpoint_facts.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"

namespace trainyard::train::checkpoint_facts_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

// Puts the values of a state into a manifest.
class ManifestValues : public core::StateWriter {
 public:
  explicit ManifestValues(Manifest& manifest) : manifest_(manifest) {}
  void tensor(const std::string& name, const at::Tensor&) override { manifest_.tensors.push_back({.name = name}); }
  void integer(const std::string& name, int64_t value) override { manifest_.values[name] = value; }
  void real(const std::string& name, double value) override { manifest_.values[name] = value; }
  void text(const std::string& name, std::string_view value) override { manifest_.values[name] = std::string(value); }

 private:
  Manifest& manifest_;
};

data::TransformOptions some_input() {
  data::TransformOptions input;
  input.height = 96;
  input.width = 128;
  input.resize_method = "bicubic";
  input.resize_half_pixel_centers = true;
  input.eval_resize_size = 160;
  input.eval_scaled_decode = true;
  input.resize_convention = data::ResizeConvention::kDali;
  input.exif_orientation = true;
  input.normalization = data::Normalization::standardized({1, 2, 3}, {4, 5, 6});
  return input;
}

// A checkpoint that says everything.
Manifest whole() {
  Manifest manifest{.identity = {.model = "m", .dataset = "imagenet", .num_classes = 3}};
  ManifestValues values(manifest);
  save_classes({"cat", "dog\n"}, 1, values);
  save_input(some_input(), "torchvision", values);
  save_weights_of(false, values);
  values.text("input/label_texts", "partial\n1 cat\n2 dog\n");
  values.text("average/kind", "exponential");
  values.integer("average/updates", 4);
  values.integer("average/steps", 9);
  values.tensor("average/weights/fc.weight", {});
  values.text("best/metric", "loss");
  values.real("best/value", 0.5);
  save_optimizer("momentum", values);
  save_found_batch(48, values);
  values.integer("trainer/global_step", 9);
  values.integer("trainer/epoch", 1);
  values.integer("trainer/step_in_epoch", 9);
  values.integer("input/epoch", 0);
  values.integer("input/offset", 36);
  return manifest;
}

TEST(CheckpointFacts, WhatIsSavedIsRead) {
  const CheckpointFacts facts = read_checkpoint_facts(whole(), "run/model.ckpt-5");
  EXPECT_EQ(facts.identity.num_classes, 3);
  EXPECT_EQ(facts.classes, (std::vector<std::string>{"cat", "dog\n"}));
  EXPECT_EQ(facts.first_output, 1);
  EXPECT_EQ(facts.label_texts, "partial\n1 cat\n2 dog\n");
  EXPECT_EQ(facts.image_size, nn::Size2d(96, 128));
  ASSERT_TRUE(facts.input && facts.average && facts.best);
  const data::TransformOptions expected = some_input();
  EXPECT_EQ(facts.input->height, 96);
  EXPECT_EQ(facts.input->resize_method, "bicubic");
  EXPECT_TRUE(facts.input->resize_half_pixel_centers && !facts.input->resize_antialias);
  EXPECT_TRUE(facts.input->eval_scaled_decode && facts.input->exif_orientation);
  EXPECT_EQ(facts.input->resize_convention, data::ResizeConvention::kDali);
  EXPECT_EQ(facts.input->eval_resize_size, 160);
  EXPECT_EQ(facts.input->normalization, expected.normalization) << "to the bit";
  EXPECT_EQ(facts.preprocessor, "torchvision");
  EXPECT_EQ(facts.average->kind, "exponential");
  EXPECT_EQ(facts.average->updates, 4);
  EXPECT_EQ(facts.average->steps, 9);
  EXPECT_EQ(facts.averaged_weights, false);
  EXPECT_EQ(facts.best->metric, "loss");
  EXPECT_EQ(facts.found_batch, 48);
  EXPECT_EQ(facts.optimizer, "tf_nesterov");  // which earlier versions saved as "momentum"
}

// A state in memory, as ranks get one from the first.
TEST(CheckpointFacts, AStateSaysTheSame) {
  core::MemoryState state;
  save_classes({"cat", "dog"}, 0, state);
  data::TransformOptions input = some_input();
  input.eval_resize_size = 0;
  input.eval_central_part = 0.8F;
  save_input(input, "", state);
  state.text("average/kind", "equal");
  state.integer("average/updates", 0);
  state.integer("average/steps", 0);
  state.tensor("average/weights/fc.weight", at::ones({1}));
  const CheckpointIdentity identity{.model = "m", .dataset = "imagenet", .num_classes = 2};
  const CheckpointFacts facts = read_checkpoint_facts(state, identity, "the checkpoint");
  EXPECT_EQ(facts.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(facts.input->eval_central_part, 0.8F);
  EXPECT_EQ(facts.preprocessor, "");
  EXPECT_EQ(facts.average->kind, "equal");
  EXPECT_FALSE(facts.averaged_weights || facts.best);
}

TEST(CheckpointFacts, EarlierReleasesSaidLess) {
  const CheckpointFacts nothing = read_checkpoint_facts(Manifest(), "");
  EXPECT_TRUE(nothing.classes.empty() && nothing.label_texts.empty() && !nothing.input && !nothing.average);
  EXPECT_EQ(nothing.image_size, nn::Size2d(0));
  Manifest old = whole();
  for (const char* later :
       {"data/input/height", "data/input/width", "data/input/scaled_decode", "data/input/exif_orientation",
        "data/input/preprocessor", "data/input/resize_convention", "data/weights_of"}) {
    old.values.erase(later);
  }
  const CheckpointFacts facts = read_checkpoint_facts(old, "");
  EXPECT_EQ(facts.image_size, nn::Size2d(0));
  EXPECT_FALSE(facts.input->eval_scaled_decode || facts.input->exif_orientation);
  EXPECT_EQ(facts.input->height, data::TransformOptions().height) << "that of the model is not known here";
  EXPECT_EQ(facts.input->width, data::TransformOptions().width);
  // Names alone, behind the background where the model had 1001 outputs.
  Manifest names{.identity = {.model = "m", .dataset = "imagenet", .num_classes = 5}};
  names.values["data/label_names"] = std::string("cat\ndog\n");
  EXPECT_EQ(read_checkpoint_facts(names, "").classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(read_checkpoint_facts(names, "").first_output, 0);
  names.identity.num_classes = 1001;
  EXPECT_EQ(read_checkpoint_facts(names, "").first_output, 1);
  names.identity = {.model = "m", .dataset = "cifar10", .num_classes = 11};
  EXPECT_EQ(read_checkpoint_facts(names, "").first_output, 0);
}

struct Lie {
  std::string entry;
  std::vector<ManifestValue> values;
};

// For every entry of a whole checkpoint.
std::vector<Lie> lies() {
  const std::string text = "text";
  std::vector<Lie> all = {
      {"data/classes",
       {"-1\ncat\ndog\n", "2\ncat\n", "3\ncat\n", "4294967296\ncat\n", "9223372036854775807\ncat\n",
        "9223372036854775808\ncat\n", "0\na\nb\nc\nd\n", "1\na\nb\nc\n", "0\n", "", "cat\ndog\n", "1 \ncat\n", text,
        int64_t{1}, 1.0}},
      {"input/label_texts",
       {"", text, "complete\n3 cat\n", "complete\n-1 cat\n", "complete\n9223372036854775807 cat\n", "complete\ncat\n",
        int64_t{1}}},
      {"data/input/resize_method", {text, "", int64_t{0}}},
      {"data/input/preprocessor", {text, "", int64_t{0}}},
      {"data/input/resize_convention", {text, "", int64_t{0}}},
      {"data/weights_of", {text, "", int64_t{0}}},
      {"average/kind", {text, "", int64_t{2}, int64_t{-1}}},
      {"average/updates", {int64_t{-1}, int64_t{10}, kLargest, text, 4.0}},
      {"average/steps", {int64_t{-1}, int64_t{3}, kLargest, text, 9.0}},
      {"best/metric", {"", int64_t{0}}},
      {"run/optimizer", {"", int64_t{0}, 1.0}},
      {"run/found_batch", {"32", int64_t{0}, int64_t{-1}, 1.0}},
      {"best/value", {kNaN, kInfinity, text}},
      {"data/input/eval_resize_size", {int64_t{-1}, int64_t{127}, int64_t{1} << 32, kLargest, text, 160.0}}};
  for (const char* count :
       {"trainer/global_step", "trainer/epoch", "trainer/step_in_epoch", "input/epoch", "input/offset"}) {
    all.push_back({count, {int64_t{-1}, kLargest, text, 1.0}});
  }
  for (const char* side : {"height", "width"}) {
    all.push_back({std::string("data/input/") + side,
                   {int64_t{0}, int64_t{-1}, int64_t{1} << 32, kLargest, int64_t{16385}, text, 96.0}});
  }
  for (const char* flag : {"resize_antialias", "resize_half_pixel_centers", "scaled_decode", "exif_orientation"}) {
    all.push_back({std::string("data/input/") + flag, {int64_t{-1}, int64_t{2}, kLargest, text, 1.0}});
  }
  for (const char* channel : {"red", "green", "blue"}) {
    const std::vector<ManifestValue> numbers = {kNaN, kInfinity, -kInfinity, 1e300, text, int64_t{1}};
    std::vector<ManifestValue> scales = numbers;
    scales.insert(scales.end(), {0.0, 1e-300, 1e-42});
    all.push_back({std::string("data/input/scale/") + channel, scales});
    all.push_back({std::string("data/input/shift/") + channel, numbers});
  }
  return all;
}

std::string refusal(const Manifest& manifest) {
  return core::message_of([&] { static_cast<void>(read_checkpoint_facts(manifest, "run/model.ckpt-5")); },
                          core::ErrorCode::kCorruptData);
}

TEST(CheckpointFacts, EveryEntryThatLiesIsRefusedByName) {
  std::map<std::string, bool> seen;
  for (const Lie& lie : lies()) {
    for (const ManifestValue& value : lie.values) {
      Manifest manifest = whole();
      ASSERT_TRUE(manifest.values.contains(lie.entry)) << lie.entry;
      manifest.values[lie.entry] = value;
      // A number of updates may be wrong because the steps are.
      const std::string entry = lie.entry == "average/steps" ? "average/" : lie.entry;
      EXPECT_THAT(refusal(manifest),
                  AllOf(HasSubstr("damaged checkpoint"), HasSubstr("run/model.ckpt-5/manifest.json"), HasSubstr(entry)))
          << lie.entry << ", value of kind " << value.index();
    }
    seen[lie.entry] = true;
  }
  for (const auto& [name, value] : whole().values) EXPECT_TRUE(seen[name]) << name << " has no lie in this test";
  for (const int64_t classes : {int64_t{-1}, (int64_t{1} << 24) + 1, int64_t{1} << 32, kLargest, int64_t{2}}) {
    Manifest manifest = whole();
    manifest.identity.num_classes = classes;
    EXPECT_NE(refusal(manifest), "no error") << classes;
  }
}

// The ends of the ranges that the lies are outside of.
TEST(CheckpointFacts, NumbersMayBeTheFirstAndTheLastOfTheirRange) {
  const auto facts_with = [](const std::map<std::string, int64_t>& values) {
    Manifest manifest = whole();
    for (const auto& [name, value] : values) manifest.values[name] = value;
    return read_checkpoint_facts(manifest, "");
  };
  const CheckpointFacts least = facts_with({{"data/input/height", 1},
                                            {"data/input/width", 1},
                                            {"data/input/eval_resize_size", 1},
                                            {"run/found_batch", 1},
                                            {"average/steps", 0},
                                            {"average/updates", 0},
                                            {"trainer/global_step", 0},
                                            {"trainer/epoch", 0},
                                            {"trainer/step_in_epoch", 0},
                                            {"run/fine_tuning/batch_size", 0},
                                            {"run/fine_tuning/num_epochs", 0},
                                            {"run/fine_tuning/early_stop", 0}});
  EXPECT_EQ(least.image_size, nn::Size2d(1));
  ASSERT_TRUE(least.input && least.average && least.fine_tuning);
  EXPECT_EQ(least.input->eval_resize_size, 1);
  EXPECT_EQ(least.found_batch, 1);
  EXPECT_EQ(least.average->steps, 0);
  EXPECT_EQ(least.fine_tuning->num_epochs, 0);

  constexpr int64_t kSteps = int64_t{1} << 53, kBatch = int64_t{1} << 40;
  const CheckpointFacts most = facts_with({{"data/input/height", 16384},
                                           {"data/input/width", 16384},
                                           {"data/input/eval_resize_size", 65535},
                                           {"run/found_batch", kBatch},
                                           {"average/steps", kSteps},
                                           {"average/updates", kSteps},
                                           {"trainer/global_step", kSteps},
                                           {"trainer/epoch", kSteps},
                                           {"trainer/step_in_epoch", kSteps},
                                           {"input/epoch", kSteps},
                                           {"input/offset", kSteps},
                                           {"run/fine_tuning/batch_size", kBatch},
                                           {"run/fine_tuning/num_epochs", kSteps},
                                           {"run/fine_tuning/early_stop", kSteps}});
  EXPECT_EQ(most.image_size, nn::Size2d(16384));
  ASSERT_TRUE(most.input && most.average && most.fine_tuning);
  EXPECT_EQ(most.input->height, 16384);
  EXPECT_EQ(most.input->width, 16384);
  EXPECT_EQ(most.input->eval_resize_size, 65535);
  EXPECT_EQ(most.found_batch, kBatch);
  EXPECT_EQ(most.average->steps, kSteps);
  EXPECT_EQ(most.average->updates, kSteps);
  EXPECT_EQ(most.fine_tuning->batch_size, kBatch);
  EXPECT_EQ(most.fine_tuning->early_stop, kSteps);
  for (const auto& [entry, value] : std::map<std::string, int64_t>{{"data/input/eval_resize_size", 65536},
                                                                   {"run/found_batch", kBatch + 1},
                                                                   {"average/steps", kSteps + 1},
                                                                   {"trainer/global_step", kSteps + 1},
                                                                   {"run/fine_tuning/batch_size", kBatch + 1},
                                                                   {"run/fine_tuning/early_stop", kSteps + 1}}) {
    Manifest manifest = whole();
    for (const char* other : {"batch_size", "num_epochs", "early_stop"}) {
      manifest.values[std::string("run/fine_tuning/") + other] = int64_t{1};
    }
    manifest.values[entry] = value;
    EXPECT_THAT(refusal(manifest), AllOf(HasSubstr(entry), HasSubstr("got " + std::to_string(value))));
  }
}

TEST(CheckpointFacts, WhatIsMissingBesideOthersIsRefusedByName) {
  for (const char* entry :
       {"data/input/height", "data/input/width", "data/input/resize_method", "data/input/eval_resize_size",
        "data/input/resize_antialias", "data/input/scale/green", "data/input/shift/blue", "average/kind",
        "average/updates", "average/steps", "best/metric", "best/value"}) {
    Manifest manifest = whole();
    manifest.values.erase(entry);
    EXPECT_THAT(refusal(manifest), AllOf(HasSubstr(entry), HasSubstr("manifest.json"))) << entry;
  }
  Manifest manifest = whole();
  manifest.tensors.clear();
  EXPECT_THAT(refusal(manifest), HasSubstr("average/weights/"));
}

// Two parts that cannot be together: pixels before the cut, and the part that is cut out.
TEST(CheckpointFacts, PartsMustFitEachOther) {
  for (const double part : {0.8, 0.0, -1.0, 2.0, kNaN}) {
    Manifest manifest = whole();
    manifest.values["data/input/eval_central_part"] = part;
    EXPECT_THAT(refusal(manifest), HasSubstr("data/input/eval_central_part")) << part;
  }
}

// Whoever opens the checkpoint meets the refusal; with others intact, a reader may pass over it.
TEST(CheckpointFacts, OpeningChecksThem) {
  const core::TempDir temp;
  class State : public core::Stateful {
   public:
    std::string classes = "0\ncat\ndog\n";
    void save(core::StateWriter& writer) const override {
      writer.text("data/classes", classes);
      writer.tensor("model/fc", at::ones({2}));
    }
    void load(const core::StateReader&) override {}
  } state;
  const CheckpointIdentity identity{.model = "m", .dataset = "imagenet", .num_classes = 2};
  CheckpointStore store(temp.file("run"));
  store.save(1, identity, state);
  state.classes = "-1\ncat\ndog\n";
  const CheckpointInfo lying = store.save(2, identity, state);
  const auto refused = [](const std::function<void()>& open) {
    return core::message_of(open, core::ErrorCode::kCorruptData);
  };
  const auto says = AllOf(HasSubstr("model.ckpt-2/manifest.json, data/classes"), HasSubstr("0 or 1"));
  EXPECT_THAT(refused([&] { open_checkpoint(lying, nullptr); }), says);
  EXPECT_THAT(refused([&] { open_newest_checkpoint(temp.file("run"), nullptr); }), says);
  EXPECT_THAT(refused([&] { load_checkpoint(lying, nullptr, state); }), says);
  EXPECT_THAT(refused([&] { static_cast<void>(read_checkpoint_facts(lying)); }), says);
  EXPECT_THAT(refused([&] { resume_newest_checkpoint(store, &identity, state); }), says);
  EXPECT_EQ(open_newest_checkpoint(temp.file("run"), nullptr, DamagedCheckpoints::kPassOver).info.global_step, 1);
}

TEST(CheckpointFacts, WhatAFineTuningHasChosenAndHowImagesAreDividedAreRead) {
  Manifest manifest = whole();
  EXPECT_FALSE(read_checkpoint_facts(manifest, "").fine_tuning || read_checkpoint_facts(manifest, "").division);
  EXPECT_FALSE(read_checkpoint_facts(manifest, "").label_sets);
  ManifestValues values(manifest);
  save_fine_tuning({.batch_size = 16, .num_epochs = 30, .early_stop = 5}, values);
  save_division({.folds = 4, .fold = 2}, values);
  save_label_sets(values);
  const CheckpointFacts facts = read_checkpoint_facts(manifest, "");
  ASSERT_TRUE(facts.fine_tuning && facts.division);
  EXPECT_EQ(facts.fine_tuning->batch_size, 16);
  EXPECT_EQ(facts.fine_tuning->num_epochs, 30);
  EXPECT_EQ(facts.fine_tuning->early_stop, 5);
  EXPECT_EQ(facts.division->folds, 4);
  EXPECT_EQ(facts.division->fold, 2);
  EXPECT_TRUE(facts.label_sets);
  for (const auto& [entry, lie] :
       std::map<std::string, ManifestValue>{{"run/fine_tuning/batch_size", int64_t{-1}},
                                            {"run/fine_tuning/num_epochs", (int64_t{1} << 53) + 1},
                                            {"run/fine_tuning/early_stop", 1.0},
                                            {"data/division", "folds=4"},
                                            {"data/label_sets", int64_t{2}}}) {
    Manifest lying = manifest;
    lying.values[entry] = lie;
    EXPECT_THAT(refusal(lying), HasSubstr(entry));
  }
}

// Scales of 8 bits belong to the model: what an optimizer keeps under such a name is none.
TEST(CheckpointFacts, TensorsTellWhetherThereAreScalesAndAHead) {
  const auto facts_of = [](const TensorEntry& tensor) {
    Manifest manifest{.identity = {.model = "m", .num_classes = 7}, .tensors = {tensor}};
    return read_checkpoint_facts(manifest, "");
  };
  EXPECT_TRUE(facts_of({.name = "model/conv.activation_scale"}).has_scales);
  EXPECT_FALSE(facts_of({.name = "optimizer/conv.activation_scale"}).has_scales);
  EXPECT_FALSE(facts_of({.name = "model/conv.weight"}).has_scales);
  EXPECT_TRUE(facts_of({.name = "model/fc.weight", .shape = {64, 7}}).weights_have_outputs);
  EXPECT_FALSE(facts_of({.name = "model/fc.weight", .shape = {64, 8}}).weights_have_outputs);
  EXPECT_FALSE(facts_of({.name = "optimizer/fc.weight", .shape = {64, 7}}).weights_have_outputs);
}

}  // namespace
}  // namespace trainyard::train::checkpoint_facts_test
