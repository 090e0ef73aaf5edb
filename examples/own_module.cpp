// Any torch::nn module as a model: LibTorch runs it, trainyard trains it. Its parameters live in the trainer's
// parameter set, so that every optimizer, schedule, checkpoint and number of replicas works with it.
//
// A recurrent network reads images row by row and tells stripes that lie from stripes that stand, and from none.

#include <cmath>
#include <memory>

#include <fmt/core.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "trainyard/trainyard.h"

namespace {

using namespace trainyard;

constexpr int64_t kSize = 12, kClasses = 3, kBatch = 30;

class RowReader : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& images) {  // [N, 3, kSize, kSize] -> [N, kClasses]
    const at::Tensor rows = images.transpose(1, 2).flatten(2);
    return last_->forward(std::get<0>(memory_->forward(rows)).select(1, kSize - 1));
  }

 private:
  torch::nn::GRU memory_ =
      register_module("memory", torch::nn::GRU(torch::nn::GRUOptions(3 * kSize, 24).batch_first(true)));
  torch::nn::Linear last_ = register_module("last", torch::nn::Linear(24, kClasses));
};

nn::Graph row_reader() {
  nn::GraphBuilder b({.image = {3, kSize, kSize}, .name = "row_reader"});
  const auto make = [] { return std::make_shared<RowReader>(); };
  return b.build(b.foreign("net", b.input(), nn::foreign_op(make, {kClasses}, "RowReader")));
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
  train::SingleCostTrainer trainer(
      {.graph = row_reader(),
       .intra_op_threads = 1,
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
