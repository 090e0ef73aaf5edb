#include <sstream>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "trainyard/data/sources/function_source.h"
#include "trainyard/frontends/callback_loop/callback_loop.h"

namespace trainyard::frontends::callback_loop::module_model_test {
namespace {

// y = w * x, of one number.
class Line : public torch::nn::Module {
 public:
  Line() { linear_->weight.data().fill_(2); }
  at::Tensor forward(const at::Tensor& x) { return linear_->forward(x.flatten(1)); }

 private:
  torch::nn::Linear linear_ = register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
};

// The closed form: d(y / 8 + 0.5 * w^2) / dw summed over eight samples of 3 is 3 + w.
TEST(ModuleModel, TrainsOnAnyNumberOfDevicesWithItsRegularization) {
  for (const std::vector<std::string>& devices : {std::vector<std::string>{"cpu"}, {"cpu:0", "cpu:1"}}) {
    std::ostringstream out;
    Callbacks callbacks = standard_callbacks(out);
    callbacks.create_dataset = [](int64_t batch_size) {
      return std::make_shared<data::FunctionSource>(
          [batch_size](const data::BatchPlace&) -> core::NamedTensors {
            return {{"x", at::full({batch_size, 1, 1, 1}, 3.0F)}, {"y", at::ones({batch_size})}};
          },
          data::FunctionSourceOptions{.batch_size = batch_size});
    };
    callbacks.create_model = [](train::TowerContext& context) {
      return module_model(context, [] { return std::make_shared<Line>(); },
                          {.channels = 1, .height = 1, .width = 1, .output = {1}}, {.l2 = 0.5});
    };
    callbacks.create_loss = [](train::TowerContext&) {
      return loss_of([](const at::Tensor& output, const at::Tensor&) { return output; });
    };
    callbacks.create_opt = [](double, nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
    const auto trainer = train(1, devices, {.batch_size = 8, .learning_rate = 0.1}, callbacks);
    const nn::ParameterSet& set = trainer->parameters();
    EXPECT_FLOAT_EQ(set.value(*set.find("module.linear.weight")).item<float>(), 2 - 0.1F * (3 + 2)) << devices.size();
  }
}

}  // namespace
}  // namespace trainyard::frontends::callback_loop::module_model_test
