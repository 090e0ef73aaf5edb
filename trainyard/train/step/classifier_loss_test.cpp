#include <cmath>
#include <memory>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/nn/execution/multibox_loss.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::classifier_loss_test {
namespace {

constexpr int64_t kBatch = 4;

std::shared_ptr<data::FunctionSource> always(const core::NamedTensors& batch) {
  return std::make_shared<data::FunctionSource>([batch](const data::BatchPlace&) { return batch; },
                                                data::FunctionSourceOptions{.batch_size = kBatch});
}

// The loss of the first step, and the network's output of it: a rate of 0 leaves the weights as they are.
struct FirstStep {
  double loss = 0;
  at::Tensor logits;
};

FirstStep first_step(const core::NamedTensors& batch, LossModule loss) {
  TowerTrainerOptions options = tiny_options({.batch_norm = false});
  options.loss = std::move(loss);
  options.learning_rate = optim::constant(0);
  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
  TowerTrainer trainer(options, always(batch));
  trainer.train({.steps_per_epoch = 1});
  return {trainer.last_base_loss(), trainer.inference_tower()({.batch = batch}).outputs["logits"]};
}

TEST(ClassifierLoss, TakesMixedLabelsWhereABatchHasThem) {
  const at::Tensor images = at::randn({kBatch, 3, 5, 5}), labels = at::tensor({0, 1, 2, 3}, at::kLong),
                   others = at::tensor({3, 3, 5, 0}, at::kLong), shares = at::tensor({1.0F, 0.5F, 0.75F, 0.9F});
  const core::NamedTensors plain = {{"images", images}, {"labels", labels}};
  core::NamedTensors mixed = plain;
  mixed.set("labels_mixed", others);
  mixed.set("label_shares", shares);
  for (const double smoothing : {0.0, 0.1}) {
    const nn::CrossEntropyOptions options{.label_smoothing = smoothing};
    const FirstStep single = first_step(plain, classifier_loss(options));
    EXPECT_NEAR(single.loss, nn::softmax_cross_entropy(single.logits, labels, options).item<double>(), 1e-6);
    const FirstStep both = first_step(mixed, classifier_loss(options));
    const double expected =
        nn::mixed_softmax_cross_entropy(both.logits, labels, others, shares, options).item<double>();
    EXPECT_NEAR(both.loss, expected, 1e-6);
    EXPECT_GT(std::abs(both.loss - single.loss), 1e-4);
  }
  EXPECT_EQ(first_step(mixed, {}).loss, first_step(mixed, classifier_loss()).loss) << "it is what graphs have";
}

TEST(BinaryClassifierLoss, TakesSingleAndMixedLabels) {
  const at::Tensor images = at::randn({kBatch, 3, 5, 5}), labels = at::tensor({0, 1, 2, 3}, at::kLong),
                   others = at::tensor({3, 3, 5, 0}, at::kLong), shares = at::tensor({1.0F, 0.5F, 0.75F, 0.9F});
  const core::NamedTensors plain = {{"images", images}, {"labels", labels}};
  core::NamedTensors mixed = plain;
  mixed.set("labels_mixed", others);
  mixed.set("label_shares", shares);
  const nn::BinaryCrossEntropyOptions options{
      .label_smoothing = 0.1, .target_threshold = 0.3, .class_weights = at::full({kTinyClasses}, 1.5F)};
  const FirstStep single = first_step(plain, binary_classifier_loss(options));
  EXPECT_NEAR(single.loss, nn::binary_cross_entropy(single.logits, labels, options).item<double>(), 1e-6);
  const FirstStep both = first_step(mixed, binary_classifier_loss(options));
  const double expected = nn::mixed_binary_cross_entropy(both.logits, labels, others, shares, options).item<double>();
  EXPECT_NEAR(both.loss, expected, 1e-6);
  EXPECT_GT(std::abs(both.loss - single.loss), 1e-4);
}

TEST(DetectionLoss, ComparesTheRowsOfBoxesWithTheBatchs) {
  constexpr int64_t kBoxes = 6, kLabels = 3;
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "boxes"});
  const auto head = [&](const char* name, int64_t columns) {
    const auto map = b.convolution(name, b.input(), {.out_channels = 6 * columns, .kernel = 5, .bias = true});
    return map;
  };
  const nn::Graph graph = b.build(
      b.box_rows("rows", {head("offsets", 4), head("scores", kLabels)}, {.coordinates = 4, .classes = kLabels}));
  ASSERT_EQ(graph.output_shape(), (nn::Shape{kBoxes, 4 + kLabels}));
  const core::NamedTensors batch = {{"images", at::randn({kBatch, 3, 5, 5})},
                                    {"boxes", at::randn({kBatch, kBoxes, 4})},
                                    {"classes", at::randint(0, kLabels, {kBatch, kBoxes}, at::kLong)},
                                    {"num_matched", at::tensor({1, 2, 3, 4}, at::kLong)}};
  TowerTrainerOptions options = tiny_options({.batch_norm = false});
  options.graph = graph;
  options.loss = detection_loss();
  options.learning_rate = optim::constant(0);
  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
  TowerTrainer trainer(options, always(batch));
  trainer.train({.steps_per_epoch = 1});
  const at::Tensor output = trainer.inference_tower()({.batch = batch}).outputs["logits"];
  const at::Tensor expected = nn::multibox_loss(output, batch["boxes"], batch["classes"], batch["num_matched"]);
  EXPECT_NEAR(trainer.last_base_loss(), expected.item<double>(), 1e-5 * expected.item<double>());
}

// Images that grow: 5 x 5 in epoch 0, 8 x 8 in epoch 1, 6 x 6, the graph's own, from then on.
nn::Graph tiny_graph_of(int64_t side) {
  nn::GraphBuilder b({.image = {3, side, side}, .name = "tiny"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.activation("relu", b.batch_norm("bn", x)));
  return b.build(b.linear("fc", b.dropout("dropout", x, 0.2), {.out_features = kTinyClasses}));
}

std::shared_ptr<data::FunctionSource> growing_source(int replicas) {
  const auto make = [](const data::BatchPlace& place) -> core::NamedTensors {
    const int64_t side = place.epoch == 0 ? 5 : place.epoch == 1 ? 8 : 6;
    core::RandomStream random(
        3, "images", {static_cast<uint64_t>(place.epoch * 100 + place.batch), static_cast<uint64_t>(place.replica)});
    at::Tensor images = at::empty({kBatch, 3, side, side}), labels = at::empty({kBatch}, at::kLong);
    random.normals(images.mutable_data_ptr<float>(), images.numel());
    for (int64_t i = 0; i < kBatch; ++i) {
      labels.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(random.below(kTinyClasses));
    }
    return {{"images", images}, {"labels", labels}};
  };
  return std::make_shared<data::FunctionSource>(
      make, data::FunctionSourceOptions{.replicas = replicas, .batch_size = kBatch, .batches_per_epoch = 5});
}

std::unique_ptr<TowerTrainer> growing_trainer(int replicas) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.graph = tiny_graph_of(6);
  options.other_sizes = {tiny_graph_of(5), tiny_graph_of(8)};
  return std::make_unique<TowerTrainer>(options, growing_source(replicas));
}

TEST(GrowingImages, AreTrainedOnAndResumedInTheMiddleOfASize) {
  for (const int replicas : {1, 2}) {
    auto whole = growing_trainer(replicas);
    whole->train({.steps_per_epoch = 14});
    for (const int64_t before : {3, 7, 12}) {
      auto first = growing_trainer(replicas);
      first->train({.steps_per_epoch = before});
      core::MemoryState state;
      first->save(state);
      auto second = growing_trainer(replicas);
      second->load(state);
      second->train({.steps_per_epoch = 14, .starting_step = before});
      EXPECT_TRUE(second->parameters().values().equal(whole->parameters().values())) << before;
      EXPECT_TRUE(second->parameters().buffer(0).equal(whole->parameters().buffer(0))) << before;
      EXPECT_EQ(second->last_base_loss(), whole->last_base_loss());
    }
  }
}

TEST(GrowingImages, ExecutorsAgree) {
  const auto values = [](const std::string& executor) {
    TowerTrainerOptions options = tiny_options();
    options.graph = tiny_graph_of(6);
    options.other_sizes = {tiny_graph_of(5), tiny_graph_of(8)};
    options.devices.executor = executor;
    TowerTrainer trainer(options, growing_source(1));
    trainer.train({.steps_per_epoch = 14});
    return trainer.parameters().values().clone();
  };
  EXPECT_LT((values("cpu") - values("reference")).abs().max().item<double>(), 1e-4);
}

TEST(LabelSetLoss, IsTheMeanOverAllLabelsOfAllImages) {
  const at::Tensor images = at::randn({kBatch, 3, 5, 5}),
                   labels = at::randint(0, 2, {kBatch, kTinyClasses}, at::kFloat);
  labels[1] = 0.25;
  const FirstStep step = first_step({{"images", images}, {"labels", labels}}, label_set_loss());
  double sum = 0;
  for (int64_t i = 0; i < kBatch; ++i) {
    for (int64_t c = 0; c < kTinyClasses; ++c) {
      const double logit = step.logits[i][c].item<double>(), target = labels[i][c].item<double>();
      sum += target * std::log1p(std::exp(-logit)) + (1 - target) * std::log1p(std::exp(logit));
    }
  }
  EXPECT_NEAR(step.loss, sum / (kBatch * kTinyClasses), 1e-5);
}

}  // namespace
}  // namespace trainyard::train::classifier_loss_test
