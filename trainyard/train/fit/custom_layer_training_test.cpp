// Networks with a layer that the program brings along, trained: with replicas, from a checkpoint, to its file.

#include <memory>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/nn/graph/custom_layer.h"
#include "trainyard/train/fit/fit.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/testing/tiny_fit.h"

namespace trainyard::train::custom_layer_training_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

// [C] -> [C]: x tanh(x w + b), with a running mean of its inputs, and random numbers where they are wanted.
class Gate : public nn::CustomLayer {
 public:
  Gate(int64_t channels, bool noise)
      : noise_(noise),
        weight_(parameter({"weight", {channels, channels}, nn::Initializer::he_uniform()})),
        bias_(parameter({"bias", {channels}})),
        mean_(buffer({"mean", {channels}})) {}
  nn::Shape output_shape(const std::vector<nn::Shape>& inputs) const override { return inputs.at(0); }
  at::Tensor forward(std::span<const at::Tensor> inputs) override {
    const at::Tensor& x = inputs[0];
    if (training()) {
      const at::NoGradGuard no_grad;
      mean_.mul_(0.9).add_(x.mean(0), 0.1);
    }
    const at::Tensor gate = x.matmul(weight_).add(bias_).tanh();
    return x.mul(noise_ && training() ? gate.mul(gate.detach().clone().uniform_(0.5, 1.5)) : gate);
  }

 private:
  bool noise_;
  at::Tensor weight_, bias_, mean_;
};

nn::Graph gated(bool noise, const std::string& name = "gate") {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "gated"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.activation("relu", x));
  x = b.foreign(name, x, nn::custom_layer<Gate>("Gate", int64_t{8}, noise));
  return b.build(b.linear("fc", x, {.out_features = kTinyClasses}));
}

FitOptions gated_options(const std::string& train_dir, bool noise) {
  return tiny_fit_options(gated(noise), train_dir);
}

class StopBehind : public Callback {
 public:
  std::string name() const override { return "stop_behind"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    if (view.global_step + 1 == 8) trainer.stop("enough");
  }
};

TEST(CustomLayerTraining, ReplicasTrainAsOneDoes) {
  const nn::ParameterSet start = [] {
    FitOptions none = gated_options("", false);
    none.learning_rate = 0;
    return fit(none).model->parameters().clone();
  }();
  for (const char* update : {"replicated", "parameter_server"}) {
    FitOptions one = gated_options("", false), two = gated_options("", false);
    two.train = shuffled_tiny_source(4, 2);
    two.devices.replicas = two.intra_op_threads = 2;
    two.variable_update = update;
    const FitResult by_one = fit(one), by_two = fit(two);
    const nn::ParameterSet &a = by_one.model->parameters(), &b = by_two.model->parameters();
    EXPECT_LT((a.values() - b.values()).abs().max().item<double>(), 1e-5) << update;
    const nn::ParameterId weight = *a.find("gate.weight");
    EXPECT_GT((a.value(weight) - start.value(weight)).abs().max().item<double>(), 1e-3) << "it trains";
  }
}

TEST(CustomLayerTraining, AResumedTrainingHasTheBitsOfAnUnbrokenOne) {
  const core::TempDir temp;
  const std::string dir = temp.file("run");
  const FitResult whole = fit(gated_options("", true));
  FitOptions broken = gated_options(dir, true);
  broken.callbacks = {std::make_shared<StopBehind>()};
  EXPECT_EQ(fit(broken).global_step, 8);
  const FitResult rest = fit(gated_options(dir, true));
  EXPECT_EQ(rest.first_step, 8);
  const nn::ParameterSet &a = whole.model->parameters(), &b = rest.model->parameters();
  EXPECT_TRUE(at::equal(a.values(), b.values()));
  EXPECT_TRUE(at::equal(a.buffer(*a.find_buffer("gate.mean")), b.buffer(*b.find_buffer("gate.mean"))));
  EXPECT_GT(b.buffer(*b.find_buffer("gate.mean")).abs().max().item<double>(), 1e-2);
}

TEST(CustomLayerTraining, ItsCheckpointsAreNoModels) {
  const core::TempDir temp;
  const std::string dir = temp.file("run");
  const FitResult result = fit(gated_options(dir, false));
  EXPECT_THAT(core::error_of([&] { load_model(dir); })->what(), HasSubstr("graph"));
  ModelDescription description = result.model->description();
  description.graph = gated(false);
  EXPECT_THAT(core::message_of([&] { save_model(temp.file("file"), description, result.model->parameters()); },
                               core::ErrorCode::kUnsupported),
              AllOf(HasSubstr("custom layer"), HasSubstr("node 'gate'"), HasSubstr("save the weights alone")));
  FitOptions renamed = gated_options(dir, false);
  renamed.graph = gated(false, "gate_2");
  EXPECT_THAT(core::error_of([&] { fit(renamed); })->what(), AllOf(HasSubstr("gate_2."), HasSubstr("gate.")));
}

}  // namespace
}  // namespace trainyard::train::custom_layer_training_test
