// A layer of one's own: it declares its parameters, computes with LibTorch's operators, and trains as all others do,
// with every optimizer, schedule, checkpoint and number of replicas. Autograd finds its gradients. This one is
// recurrent: it reads images row by row, and distinguishes horizontal stripes, vertical stripes and none.
#include <cmath>
#include <memory>

#include <fmt/core.h>

#include "trainyard/trainyard.h"

namespace {

using namespace trainyard;

constexpr int64_t kSize = 12, kClasses = 3, kBatch = 30;

// The minimal gated unit of Zhou et al., 2016: [C, H, W] -> [units], its memory behind the last row.
class RowReader : public nn::CustomLayer {
 public:
  RowReader(int64_t inputs, int64_t units) : inputs_(inputs), units_(units) {}
  nn::Shape output_shape(const std::vector<nn::Shape>& /*inputs*/) const override { return {units_}; }
  at::Tensor forward(std::span<const at::Tensor> inputs) override {  // [N, C, H, W] -> [N, units]
    const at::Tensor rows = inputs[0].transpose(1, 2).flatten(2).matmul(of_row_).add(bias_);  // [N, H, 2 * units]
    at::Tensor memory = rows.new_zeros({rows.size(0), units_});
    for (const at::Tensor& row : rows.unbind(1)) {
      const at::Tensor gate = row.narrow(1, 0, units_).add(memory.mm(gate_)).sigmoid();
      const at::Tensor fresh = row.narrow(1, units_, units_).add(memory.mul(gate).mm(fresh_)).tanh();
      memory = memory.lerp(fresh, gate);
    }
    return memory;
  }

 private:
  int64_t inputs_, units_;
  at::Tensor of_row_ = parameter({"of_row", {inputs_, 2 * units_}, nn::Initializer::uniform(0.2)});
  at::Tensor gate_ = parameter({"gate", {units_, units_}, nn::Initializer::uniform(0.2)});
  at::Tensor fresh_ = parameter({"fresh", {units_, units_}, nn::Initializer::uniform(0.2)});
  at::Tensor bias_ = parameter({.name = "bias", .shape = {2 * units_}, .decay = false});
};

nn::Graph row_reader() {
  nn::GraphBuilder b({.image = {3, kSize, kSize}, .name = "row_reader"});
  const auto memory = b.foreign("rows", b.input(), nn::custom_layer<RowReader>("RowReader", 3 * kSize, 24));
  return b.build(b.linear("last", memory, {.out_features = kClasses}));
}

core::NamedTensors stripes(const data::BatchPlace& place) {
  const at::Tensor images = core::new_tensor({kBatch, 3, kSize, kSize}), labels = core::new_tensor({kBatch}, at::kLong);
  auto* pixel = images.mutable_data_ptr<float>();
  for (int64_t sample = 0; sample < kBatch; ++sample) {
    core::RandomStream noise(1, "stripes", {static_cast<uint64_t>(place.batch * kBatch + sample)});
    const int64_t label = labels.mutable_data_ptr<int64_t>()[sample] = sample % kClasses;
    const float phase = noise.uniform(0, 6.28F);
    for (int64_t i = 0; i < 3 * kSize * kSize; ++i) {
      const auto along = static_cast<float>(label == 0 ? i / kSize % kSize : label == 1 ? i % kSize : 0);
      *pixel++ = std::sin(along + phase) + 0.3F * noise.normal();
    }
  }
  return {{"images", images}, {"labels", labels}};
}

}  // namespace

int main() try {
  train::TowerTrainer trainer(
      {.graph = row_reader(),
       .threads = {.intra_op_threads = 1},
       .make_optimizer = optim::momentum(),
       .learning_rate = optim::constant(0.1)},
      std::make_shared<data::FunctionSource>(stripes, data::FunctionSourceOptions{.batch_size = kBatch}));
  trainer.train({.steps_per_epoch = 1});
  const double first = trainer.last_base_loss();
  trainer.train({.steps_per_epoch = 150});
  const double last = trainer.last_base_loss();
  fmt::print("loss {:.2f} at first, {:.2f} after 150 steps: {}\n", first, last, last < first / 4 ? "learned" : "lost");
} catch (const core::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return core::exit_code(error.code());
}
