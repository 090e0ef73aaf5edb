// 36 steps of a small network against Keras, and against the formulas in double (tools/golden/train_ctl.py): over the
// warm-up, which ends with step 5, and the boundary at step 30.
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/frontends/train_ctl/ctl_plan.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/train/callbacks/callback_wrappers.h"

namespace trainyard::frontends::keras_steps_test {
namespace {

constexpr int64_t kSteps = 36, kBatch = 8, kSize = 8, kClasses = 5;

// The script's generator: whole numbers from 0 to 32767.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  int64_t operator()() {
    state_ = (1103515245 * state_ + 12345) % (uint64_t{1} << 31);
    return static_cast<int64_t>(state_ >> 16);
  }

 private:
  uint64_t state_;
};

std::shared_ptr<data::BatchSource> script_batches() {
  const auto make = [](const data::BatchPlace& place) -> core::NamedTensors {
    const at::Tensor images = at::empty({kBatch, 3, kSize, kSize}), labels = at::empty({kBatch}, at::kLong);
    Draw pixel(static_cast<uint64_t>(1000 + place.batch)), label(static_cast<uint64_t>(5000 + place.batch));
    for (int64_t i = 0; i < images.numel(); ++i) {
      images.mutable_data_ptr<float>()[i] = static_cast<float>(pixel() % 256);
    }
    for (int64_t i = 0; i < kBatch; ++i) labels.mutable_data_ptr<int64_t>()[i] = label() % kClasses;
    return {{"images", images}, {"labels", labels}};
  };
  return std::make_shared<data::FunctionSource>(make, data::FunctionSourceOptions{.batch_size = kBatch});
}

CtlModel script_model() {
  nn::GraphBuilder b({.image = {3, kSize, kSize}, .name = "script", .batch_norm = {.epsilon = 1e-5, .decay = 0.9}});
  const auto convolution_norm = [&](const std::string& name, nn::GraphBuilder::Value x, int64_t kernel, int64_t stride,
                                    int64_t channels) {
    x = b.convolution(name, x,
                      {.out_channels = channels, .kernel = kernel, .stride = stride, .padding = nn::Padding::same()});
    return b.batch_norm("n" + name, x);
  };
  auto x = b.activation("relu1", convolution_norm("a", b.input(), 3, 1, 4));
  x = b.activation("relu2", b.add("add", {convolution_norm("b", x, 3, 2, 6), convolution_norm("s", x, 1, 2, 6)}));
  x = b.max_pool("pool", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::same()});
  x = b.linear("d", b.global_average_pool("mean", x), {.out_features = kClasses});
  CtlModel model{.graph = b.build(x)};
  model.regularization = optim::keras_l2(model.graph, 1e-4);
  return model;
}

void set_first_weights(nn::ParameterSet& set) {
  uint64_t seed = 1;
  for (const char* name : {"a.weight", "b.weight", "s.weight", "d.weight"}) {
    Draw draw(seed++);
    at::Tensor value = set.value(*set.find(name));
    const at::Tensor drawn = at::empty(value.sizes(), at::kDouble);
    for (int64_t i = 0; i < drawn.numel(); ++i) {
      drawn.mutable_data_ptr<double>()[i] = (static_cast<double>(draw()) / 32768 - 0.5) / 2;
    }
    value.copy_(drawn);
  }
}

using Numbers = std::map<std::string, std::vector<double>>;

Numbers golden_of(const std::string& source) {
  std::istringstream lines(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/frontends/testdata/train_ctl.txt")));
  Numbers numbers;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    std::string from, name;
    cells >> from >> name;
    if (from != source) continue;
    for (double value = 0; cells >> value;) numbers[name].push_back(value);
  }
  return numbers;
}

std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor all = tensor.to(at::kDouble).contiguous();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

Numbers trained(CtlModel model, at::ScalarType dtype) {
  // A step an epoch, at the rates of batches of 256.
  const TrainCtlParams params{.momentum = 0.9, .batch_size = 256};
  const CtlPlan plan{.global_batch_size = 256, .steps_per_epoch = 1, .end_step = kSteps};
  train::TowerTrainerOptions options =
      ctl_trainer_options(model, params, plan, {.executor = "auto"}, {.intra_op_threads = 1});
  options.devices.dtype = dtype;
  options.devices.executor = dtype == at::kDouble ? "reference" : "auto";
  options.start = set_first_weights;
  train::TowerTrainer trainer(options, script_batches());
  Numbers numbers;
  trainer.add(std::make_shared<train::RunFunction>(
      "losses", [&](train::Trainer&) { numbers["loss"].push_back(trainer.last_total_loss()); },
      train::RunFunctionTimes{.before_train = false, .as_trigger = false, .each_step = true}));
  trainer.train({.steps_per_epoch = kSteps});
  nn::ParameterSet& set = trainer.parameters();
  for (const nn::Segment& segment : set.segments()) numbers[segment.spec.name] = values_of(set.value(segment.id));
  for (int b = 0; b < static_cast<int>(set.buffer_count()); ++b) {
    numbers[set.buffer_spec(b).name] = values_of(set.buffer(b));
  }
  return numbers;
}

// Relative to the largest number of the tensor.
void expect_near(const Numbers& actual, const Numbers& expected, double tolerance) {
  EXPECT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    ASSERT_EQ(actual.at(name).size(), values.size()) << name;
    double largest = 1;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(actual.at(name)[i], values[i], tolerance * largest) << name << "[" << i << "]";
    }
  }
}

TEST(TrainCtlSteps, AreKeras) {
  expect_near(trained(script_model(), at::kFloat), golden_of("keras"), 1e-5);
}

TEST(TrainCtlSteps, AreTheFormulasInDouble) {
  expect_near(trained(script_model(), at::kDouble), golden_of("double"), 1e-10);
}

// Terms that differ cannot be one weight decay; as single terms they give the same numbers.
TEST(TrainCtlSteps, TakeTermsOneByOneWhereTheyAreNotOneDecay) {
  CtlModel model = script_model();
  model.regularization.push_back({.name = "none", .pattern = "na.weight", .coefficient = 0});
  expect_near(trained(model, at::kDouble), golden_of("double"), 1e-10);
}

TEST(TrainCtlSteps, OnTwoDevicesAreThoseOfOneWithBothBatches) {
  const auto one_batch_each = [](int replicas) {
    const auto make = [replicas](const data::BatchPlace& place) -> core::NamedTensors {
      const at::Tensor images = at::empty({8 / replicas, 3, kSize, kSize}),
                       labels = at::empty({8 / replicas}, at::kLong);
      for (int64_t i = 0; i < images.size(0); ++i) {
        Draw pixel(static_cast<uint64_t>(100 * place.batch + place.replica * images.size(0) + i));
        labels.mutable_data_ptr<int64_t>()[i] = pixel() % kClasses;
        for (int64_t k = 0; k < 3 * kSize * kSize; ++k) {
          images.mutable_data_ptr<float>()[i * 3 * kSize * kSize + k] = static_cast<float>(pixel() % 256);
        }
      }
      return {{"images", images}, {"labels", labels}};
    };
    return std::make_shared<data::FunctionSource>(
        make, data::FunctionSourceOptions{.replicas = replicas, .batch_size = 8 / replicas});
  };
  // Without norms, whose statistics are each device's own.
  nn::GraphBuilder b({.image = {3, kSize, kSize}, .name = "plain"});
  auto x = b.activation("relu", b.convolution("c", b.input(), {.out_channels = 4, .kernel = 3, .stride = 2}));
  x = b.linear("d", b.global_average_pool("mean", x), {.out_features = kClasses});
  CtlModel model{.graph = b.build(x)};
  model.regularization = optim::keras_l2(model.graph, 1e-4);
  const auto values = [&](int64_t devices) {
    const TrainCtlParams params{.momentum = 0.9, .batch_size = 8 / devices, .devices = devices};
    const CtlPlan plan{.global_batch_size = 8, .steps_per_epoch = 2, .end_step = 12};
    train::TowerTrainerOptions options =
        ctl_trainer_options(model, params, plan, {.executor = "reference"}, {.intra_op_threads = 2});
    options.devices.dtype = at::kDouble;
    train::TowerTrainer trainer(options, one_batch_each(static_cast<int>(devices)));
    trainer.train({.steps_per_epoch = 12});
    return trainer.parameters().values().clone();
  };
  EXPECT_LT(values(1).sub(values(2)).abs().max().item<double>(), 1e-13);
}

}  // namespace
}  // namespace trainyard::frontends::keras_steps_test
