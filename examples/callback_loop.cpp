// The callback loop with each of its callbacks replaced once: a network learns in which two of the four quarters of the
// plane a point lies, on two devices, with a loss that has a parameter of its own.

#include "trainyard/callback_loop.h"

#include <iostream>
#include <memory>

#include <fmt/core.h>

namespace {

using namespace trainyard;
using namespace trainyard::frontends::callback_loop;

// One point, without a batch dimension: the k-th is always the same.
core::NamedTensors point(const data::BatchPlace& place) {
  core::RandomStream random(1, "point", {static_cast<uint64_t>(place.batch)});
  const float x = random.uniform(-1, 1), y = random.uniform(-1, 1);
  const at::Tensor point = core::new_tensor({2}), label = core::new_tensor({}, at::kLong);
  point[0].fill_(x), point[1].fill_(y), label.fill_(x * y > 0 ? 1 : 0);
  return {{"point", point}, {"label", label}};
}

nn::Graph network() {
  nn::GraphBuilder b({.image = {2, 1, 1}, .name = "quarters"});
  auto x = b.activation("body.relu", b.convolution("body.hidden", b.input(), {.out_channels = 32, .kernel = 1}));
  return b.build(b.linear("head", b.global_average_pool("pool", x), {.out_features = 2}));
}

Callbacks callbacks() {
  Callbacks c = standard_callbacks();
  c.create_dataset = [](int64_t) {
    return std::make_shared<data::FunctionSource>(point, data::FunctionSourceOptions{.batch_size = 1});
  };
  // The k-th batch is made of the points from k times the batch size on, so that a run continues where it stopped.
  c.make_batches = [](const Dataset& points, int64_t size) {
    const auto batch = [points, size](const data::BatchPlace& place) -> core::NamedTensors {
      points->seek({.offset = place.batch * size});
      const at::Tensor all = core::new_tensor({size, 2}), labels = core::new_tensor({size}, at::kLong);
      for (int64_t i = 0; i < size; ++i) {
        const data::Batch next = points->next()[0];
        all[i].copy_(next.tensors["point"]);
        labels[i].copy_(next.tensors["label"]);
      }
      return {{"points", all}, {"labels", labels}};
    };
    return std::make_shared<data::FunctionSource>(batch, data::FunctionSourceOptions{.batch_size = size});
  };
  c.create_model = [](train::TowerContext& context) { return graph_model(context, network(), {.l2 = 1e-5}); };
  c.create_loss = [](train::TowerContext& context) -> Loss {
    train::TowerParameter& sharpness = context.parameter({"loss.sharpness", {}, nn::Initializer::constant(1)});
    return [&sharpness](const Tensors& in, const train::TowerInput&) {
      return nn::softmax_cross_entropy(in[0].mul(sharpness.value()), in[1]).mul(in[0].size(0));  // the sum
    };
  };
  c.create_opt = [](double, nn::ParameterSet& set) { return optim::optimizers().get("tf_nesterov")(set, {}); };
  c.create_ckpt = [](const CheckpointInput& in) -> Checkpoints {
    const std::shared_ptr<core::Stateful> all(std::shared_ptr<void>(), &in.trainer);
    return {.ckpt = all, .manager = std::make_shared<CheckpointManager>(in.ckpt_path, all, /*max_to_keep=*/3)};
  };
  c.input_pre = [](const core::NamedTensors& batch, double) -> Tensors {
    return {batch["points"].unsqueeze(2).unsqueeze(3)};  // [N, 2] -> [N, 2, 1, 1]
  };
  c.loss_pre = [](const Tensors& output, const core::NamedTensors& batch, const Model&, double) -> Tensors {
    return {output[0], batch.has("labels") ? batch["labels"] : at::Tensor()};
  };
  c.grad_pre = [](const at::Tensor& loss, const Tensors&, const core::NamedTensors&, const Model& model, const Loss&,
                  double) -> GradPreResult {
    return {.loss_per_batch = loss, .extra_loss = model.regularization(), .trainable_vars = {{"*"}}};
  };
  c.update_pre = [](const core::NamedTensors& gradients, const at::Tensor&, const Tensors&, const core::NamedTensors&,
                    const Model&, const Loss&, double, const optim::Optimizer&) -> UpdatePreResult {
    return {.update_gradients = clip_by_global_norm(gradients, 1), .display_gradients = gradients};
  };
  c.every_steps.erase(1);
  c.every_steps[100] = [](const StepInput& in) {
    if (in.dev != 0) return;
    in.lr.set(in.lr.value() * 0.8);
    const double norm = in.display_gradients["head.weight"].norm().item<double>();
    fmt::print("step {}: the head's gradient has a norm of {:.3f}\n", in.step, norm);
  };
  c.every_steps.erase(10);
  c.at_step[400] = [](const StepInput& in) {
    if (in.dev == 0) in.trainer.set_trainable("body.*", false);
  };
  return c;
}

}  // namespace

int main() {
  try {
    const auto trainer =
        frontends::callback_loop::train(500, {"cpu:0", "cpu:1"}, {.batch_size = 64, .learning_rate = 0.2}, callbacks());
    const double loss = trainer->last_base_loss();
    fmt::print("loss {:.3f} after {} steps: {}\n", loss, trainer->global_step(), loss < 0.2 ? "learned" : "lost");
    return 0;
  } catch (const core::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return core::exit_code(error.code());
  }
}
