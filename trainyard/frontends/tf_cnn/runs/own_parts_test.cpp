// A data set and a model of the caller's own: each hook is called, and changes what it says.
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends::own_parts_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

constexpr int64_t kClasses = 4;

// Class k is an image of the number k + 1.
core::NamedTensors numbered(int64_t batch_size, int64_t first) {
  const at::Tensor images = at::zeros({batch_size, 3, 4, 4}), labels = at::zeros({batch_size}, at::kLong);
  for (int64_t i = 0; i < batch_size; ++i) {
    const int64_t label = (first + i) % kClasses;
    images[i].fill_(static_cast<double>(label + 1));
    labels[i] = label;
  }
  return {{"images", images}, {"labels", labels}};
}

class Numbers : public BenchmarkDataset {
 public:
  std::string name() const override { return "numbers"; }
  int64_t num_classes() const override { return kClasses; }
  int64_t num_examples_per_epoch(data::Subset subset) const override {
    return subset == data::Subset::kTrain ? 48 : 24;
  }
  std::shared_ptr<data::BatchSource> make_source(const WantedBatches& wanted) const override {
    asked.push_back(wanted);
    return std::make_shared<data::FunctionSource>(
        [size = wanted.batch_size](const data::BatchPlace& place) { return numbered(size, place.batch); },
        data::FunctionSourceOptions{.replicas = wanted.replicas, .batch_size = wanted.batch_size});
  }
  mutable std::vector<WantedBatches> asked;
};

// A linear layer of the caller's own, whose hooks can be set one by one.
class Linear : public BenchmarkModel {
 public:
  std::string name() const override { return model_name; }
  int64_t get_batch_size() const override { return 6; }
  void set_batch_size(int64_t size) override { batch_sizes.push_back(size); }
  InputShapes get_input_shapes(data::Subset) const override { return shapes; }
  core::NamedTensors get_synthetic_inputs(const SyntheticBatch& wanted) const override {
    if (!zeros) return {};
    return {{"images", at::zeros({wanted.batch_size, 3, 4, 4})},
            {"labels", at::full({wanted.batch_size}, wanted.num_classes - 1, at::kLong)}};
  }
  nn::Graph build_network(const models::ModelOptions& options) const override {
    nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
    return b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = options.num_classes}));
  }
  std::vector<std::string> filter_l2_loss_vars(std::vector<std::string> names) const override {
    seen_names = names;
    if (decaying) return *decaying;
    return names;
  }
  train::LossFunction loss_function() const override { return loss; }
  core::NamedTensors accuracy_function(const at::Tensor& logits, const at::Tensor& labels) const override {
    return {{"simple_value:mean_label", labels.to(at::kDouble).mean()}, {"tensor:logits", logits}};
  }
  void postprocess(EvaluationResults& results) override {
    evaluated = results;
    if (top_1) results.numbers["top_1_accuracy"] = *top_1;
  }
  bool reached_target() const override { return !evaluated.numbers.empty() && stops; }

  std::string model_name = "linear";
  InputShapes shapes = {{"images", {3, 4, 4}}, {"labels", {}}};
  bool zeros = false, stops = false;
  std::optional<std::vector<std::string>> decaying;
  train::LossFunction loss;
  std::optional<double> top_1;
  mutable std::vector<std::string> seen_names;
  std::vector<int64_t> batch_sizes;
  EvaluationResults evaluated;
};

TfCnnOptions three_steps() {
  TfCnnOptions params;
  params.steps.num_batches = 3;
  params.steps.num_warmup_batches = 0;
  params.display.display_every = 1;
  params.device.gpu = false;
  params.learning_rate.init_learning_rate = 0.001;
  return params;
}

struct Outcome {
  RunStatistics statistics;
  std::string lines;
};

Outcome run(const TfCnnOptions& params, const std::shared_ptr<Linear>& model, bool own_data = true) {
  std::ostringstream out;
  auto data = own_data ? std::make_shared<Numbers>() : nullptr;
  const RunStatistics statistics = BenchmarkCnn(params, data, model).run(out);
  return {statistics, out.str()};
}

TEST(OwnParts, NamesAndSizesAreThoseOfTheModelAndTheData) {
  const auto model = std::make_shared<Linear>();
  const auto data = std::make_shared<Numbers>();
  TfCnnOptions params = three_steps();
  params.device.replicas = 2;
  std::ostringstream out;
  const RunStatistics statistics = BenchmarkCnn(params, data, model).run(out);
  EXPECT_EQ(statistics.num_steps, 3);
  EXPECT_THAT(out.str(), HasSubstr("Model:       linear\nDataset:     numbers\n"));
  EXPECT_THAT(out.str(), HasSubstr("Batch size:  12 global\n             6 per device\n"));
  EXPECT_THAT(out.str(), HasSubstr("Num epochs:  0.75\n"));
  EXPECT_THAT(model->batch_sizes, ElementsAre(6));
  ASSERT_EQ(data->asked.size(), 1U);
  EXPECT_EQ(data->asked[0].replicas, 2);
  EXPECT_EQ(data->asked[0].num_classes, kClasses);
  EXPECT_EQ(data->asked[0].image_size, nn::Size2d(4));
  EXPECT_TRUE(data->asked[0].training && data->asked[0].repeat);
}

// train = not eval, as in tf_cnn_benchmarks.
TEST(OwnParts, ForwardPassesTakeTrainingImages) {
  TfCnnOptions params = three_steps();
  params.mode = RunMode::kForwardOnly;
  const auto data = std::make_shared<Numbers>();
  std::ostringstream out;
  BenchmarkCnn(params, data, std::make_shared<Linear>()).run(out);
  ASSERT_EQ(data->asked.size(), 1U);
  EXPECT_TRUE(data->asked[0].training && data->asked[0].repeat);
  EXPECT_EQ(data->asked[0].subset, data::Subset::kTrain);
}

TEST(OwnParts, TheLossIsTheModels) {
  const auto model = std::make_shared<Linear>();
  model->loss = [](const at::Tensor& logits, const at::Tensor&) { return (logits * 0 + 0.25).mean(); };
  TfCnnOptions params = three_steps();
  params.update.weight_decay = 0;
  EXPECT_NEAR(run(params, model).statistics.last_average_loss.value_or(0), 0.25, 1e-6);
}

// Images of zeros and a bias of zero: all classes are equally likely, whatever the weights.
TEST(OwnParts, SyntheticInputsAreTheModels) {
  const auto model = std::make_shared<Linear>();
  model->zeros = true;
  TfCnnOptions params = three_steps();
  params.steps.num_batches = 1;
  params.num_classes = 10;
  params.update.weight_decay = 0;
  EXPECT_NEAR(run(params, model, false).statistics.last_average_loss.value_or(0), std::log(10.0), 1e-5);
}

TEST(OwnParts, WeightsOutsideTheFilterDoNotDecay) {
  const auto total = [](std::optional<std::vector<std::string>> decaying) {
    const auto model = std::make_shared<Linear>();
    model->decaying = std::move(decaying);
    model->loss = [](const at::Tensor& logits, const at::Tensor&) { return (logits * 0).mean(); };
    TfCnnOptions params = three_steps();
    params.update.weight_decay = 1;
    const double loss = run(params, model).statistics.last_average_loss.value_or(-1);
    EXPECT_THAT(model->seen_names, ElementsAre("head.weight", "head.bias"));
    return loss;
  };
  EXPECT_EQ(total(std::vector<std::string>()), 0);
  EXPECT_EQ(total(std::vector<std::string>{"head.bias"}), 0) << "which is zero";
  EXPECT_GT(total(std::nullopt), 0);
}

TfCnnOptions with_evaluations() {
  TfCnnOptions params = three_steps();
  params.mode = RunMode::kTrainingAndEvaluation;
  params.steps.num_batches = 8;
  params.steps.eval_every_n_steps = 2;
  params.steps.num_eval_batches = 3;
  return params;
}

TEST(OwnParts, ResultsGoThroughPostprocessOverAllBatchesAndDevices) {
  const auto model = std::make_shared<Linear>();
  model->top_1 = 0.125;
  model->stops = true;
  TfCnnOptions params = with_evaluations();
  params.device.replicas = 2;
  const core::TempDir directory;
  params.saving.train_dir = directory.file("run");
  params.dialect = Dialect::kTrainyard;
  params.display.summary_verbosity = 1;
  const Outcome done = run(params, model);
  EXPECT_THAT(done.lines, HasSubstr("Accuracy @ 1 = 0.1250"));
  EXPECT_EQ(done.statistics.top_1_accuracy.value_or(0), 0.125);
  EXPECT_THAT(done.lines, HasSubstr("Stopping, as the model indicates its custom goal was reached\n"));
  EXPECT_EQ(done.statistics.num_steps, 2);
  // Three batches of six on each of two devices: the labels of a batch begin with its number.
  ASSERT_TRUE(model->evaluated.tensors.has("tensor:logits"));
  EXPECT_EQ(model->evaluated.tensors["tensor:logits"].size(0), 36);
  double labels = 0;
  for (int64_t batch = 0; batch < 3; ++batch) {
    labels += numbered(6, batch)["labels"].to(at::kDouble).mean().item<double>() / 3;
  }
  EXPECT_NEAR(model->evaluated.numbers.at("simple_value:mean_label"), labels, 1e-9);
  const std::string metrics = core::local_file_system().read_file(directory.file("run/metrics.jsonl"));
  EXPECT_THAT(metrics, HasSubstr("mean_label"));
}

TEST(OwnParts, ACheckpointIsEvaluatedAndGoneOnFromByTheSameModelAlone) {
  const core::TempDir directory;
  TfCnnOptions params = three_steps();
  params.saving.train_dir = directory.file("run");
  run(params, std::make_shared<Linear>());
  params.steps.num_batches = 5;
  EXPECT_EQ(run(params, std::make_shared<Linear>()).statistics.num_steps, 2);

  TfCnnOptions evaluation = params;
  evaluation.mode = RunMode::kEvaluation;
  evaluation.steps.num_eval_batches = 4;
  const Outcome evaluated = run(evaluation, std::make_shared<Linear>());
  EXPECT_THAT(evaluated.lines, HasSubstr("[24 examples]"));
  EXPECT_TRUE(evaluated.statistics.top_1_accuracy.has_value());

  const auto other = std::make_shared<Linear>();
  other->model_name = "another";
  EXPECT_THAT(core::message_of([&] { run(evaluation, other); }), HasSubstr("another"));
  EXPECT_THAT(core::message_of([&] { run(params, other); }), HasSubstr("another"));
}

TEST(OwnParts, RegisteredModelsTakeDataOfTheCallersOwn) {
  TfCnnOptions params = three_steps();
  params.model = "trivial";
  params.image_size = 4;
  params.batch_size = 2;
  const Outcome done = run(params, nullptr);
  EXPECT_THAT(done.lines, HasSubstr("Model:       trivial\nDataset:     numbers\n"));
  EXPECT_EQ(done.statistics.num_steps, 3);
}

TEST(OwnParts, RefuseWhatTheyCannotGoWith) {
  const auto problem = [](const std::function<void(TfCnnOptions&, Linear&)>& change) {
    TfCnnOptions params = three_steps();
    const auto model = std::make_shared<Linear>();
    change(params, *model);
    return core::message_of([&] { run(params, model); });
  };
  EXPECT_EQ(problem([](TfCnnOptions&, Linear&) {}), "no error");
  EXPECT_THAT(problem([](TfCnnOptions& p, Linear&) { p.input.data_dir = "/data"; }), HasSubstr("data_dir"));
  EXPECT_THAT(problem([](TfCnnOptions& p, Linear&) { p.auxiliary_heads = true; }), HasSubstr("auxiliary_heads"));
  EXPECT_THAT(problem([](TfCnnOptions& p, Linear&) { p.dropout = 0.5; }), HasSubstr("stochastic_depth, dropout"));
  EXPECT_THAT(problem([](TfCnnOptions& p, Linear&) { p.batch_norm_decay = 0.5; }), HasSubstr("or batch_norm_decay"));
  EXPECT_THAT(problem([](TfCnnOptions& p, Linear& m) {
                p.loss.label_smoothing = 0.1;
                m.loss = [](const at::Tensor& logits, const at::Tensor&) { return logits.mean(); };
              }),
              HasSubstr("label_smoothing"));
  EXPECT_THAT(problem([](TfCnnOptions& p, Linear& m) {
                p.loss.loss = "bce";
                m.loss = [](const at::Tensor& logits, const at::Tensor&) { return logits.mean(); };
              }),
              HasSubstr("loss.loss"));
  EXPECT_THAT(problem([](TfCnnOptions& p, Linear& m) {
                p.loss.class_weights = "balanced";
                m.loss = [](const at::Tensor& logits, const at::Tensor&) { return logits.mean(); };
              }),
              HasSubstr("leave loss.label_smoothing, loss.loss, loss.class_weights and distillation out"));
  EXPECT_THAT(problem([](TfCnnOptions&, Linear& m) { m.shapes = {{"labels", {}}}; }), HasSubstr("get_input_shapes"));
  EXPECT_THAT(problem([](TfCnnOptions&, Linear& m) { m.decaying = {"tail.weight"}; }), HasSubstr("tail.weight"));
}

}  // namespace
}  // namespace trainyard::frontends::own_parts_test
