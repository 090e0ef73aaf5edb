// The benchmark of tf_cnn_benchmarks with a data set and a network of your own: the data set makes its batches, the
// model says its loss and when it is good enough, and the run prints, saves and measures as the command does.
#include <iostream>

#include <fmt/core.h>

#include "trainyard/tf_cnn.h"

using namespace trainyard;

namespace {

// Noise that changes from row to row, which is class 0, or from column to column, which is class 1.
class Stripes : public frontends::BenchmarkDataset {
 public:
  std::string name() const override { return "stripes"; }
  int64_t num_classes() const override { return 2; }
  int64_t num_examples_per_epoch(data::Subset) const override { return 320; }
  std::shared_ptr<data::BatchSource> make_source(const frontends::WantedBatches& wanted) const override {
    const auto make = [wanted](const data::BatchPlace& place) -> core::NamedTensors {
      const int64_t count = wanted.batch_size, height = wanted.image_size.height, width = wanted.image_size.width;
      const at::Tensor images = core::new_tensor({count, 3, height, width}),
                       labels = core::new_tensor({count}, at::kLong);
      core::RandomStream random(wanted.seed, wanted.subset == data::Subset::kTrain ? "stripes" : "unseen stripes",
                                {static_cast<uint64_t>(place.batch)});
      for (int64_t i = 0; i < count; ++i) {
        const int64_t label = i % 2, lines = label == 0 ? height : width;
        labels[i] = label;
        for (int64_t k = 0; k < lines; ++k) images[i].select(label + 1, k).fill_(random.normal());
      }
      return {{"images", images}, {"labels", labels}};
    };
    return std::make_shared<data::FunctionSource>(
        make, data::FunctionSourceOptions{.replicas = wanted.replicas, .batch_size = wanted.batch_size});
  }
};

class SmallNet : public frontends::BenchmarkModel {
 public:
  std::string name() const override { return "small_net"; }
  int64_t get_batch_size() const override { return 16; }
  models::DefaultSchedule get_learning_rate() const override { return {.learning_rate = 0.05}; }
  InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 16, 16}}, {"labels", {}}}; }
  nn::Graph build_network(const models::ModelOptions& options) const override {
    nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
    auto x = b.convolution("conv", b.input(), {.out_channels = 16, .kernel = 3});
    x = b.global_average_pool("pool", b.activation("relu", x));
    return b.build(b.linear("head", x, {.out_features = options.num_classes}));
  }
  train::LossFunction loss_function() const override {
    return [](const at::Tensor& logits, const at::Tensor& labels) {
      return nn::softmax_cross_entropy(logits, labels, {.label_smoothing = 0.05});
    };
  }
  void postprocess(frontends::EvaluationResults& results) override { top_1_ = results.numbers["top_1_accuracy"]; }
  bool reached_target() const override { return top_1_ >= 0.97; }

 private:
  double top_1_ = 0;
};

}  // namespace

int main() try {
  core::install_cpu_allocator();
  const frontends::BenchmarkParams params = {{"device", "cpu"},
                                             {"num_batches", "400"},
                                             {"num_eval_batches", "4"},
                                             {"eval_during_training_every_n_steps", "20"},
                                             {"optimizer", "momentum"}};
  frontends::BenchmarkCnn benchmark(params, std::make_shared<Stripes>(), std::make_shared<SmallNet>());
  const frontends::RunStatistics statistics = benchmark.run(std::cout);
  fmt::print("{} steps, top-1 {:.3f}\n", statistics.num_steps, statistics.top_1_accuracy.value_or(0));
} catch (const core::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return core::exit_code(error.code());
}
