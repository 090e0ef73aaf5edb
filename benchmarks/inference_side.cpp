// Our side of benchmarks/peers/inference: a frozen network that measures itself when it is told to, so that the sides
// of a comparison take turns and start only once.
//
// usage: inference_side MODEL fp32|bf16|int8 BATCH [FILE.onnx]
//
// Prints a line {"gflop": of an image's forward pass, "gflops": the machine's limit or 0} when it is ready, and answers
// each line "STREAMS SECONDS" with {"images_per_sec"}: STREAMS threads that each run batches, with an equal part of the
// cores. Weights are random, the same at each start; 8 bits are calibrated on random images. FILE.onnx is written with
// the network, of int8 as it computes in 8 bits.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <fmt/core.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/machine/machine_limits.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/trainyard.h"

using namespace trainyard;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kWarmUp = 2;
constexpr size_t kFewestTimes = 3;

// Norms and biases with different numbers: as they start, some layers would give nothing but zeros.
void draw_vectors(nn::ParameterSet& set) {
  for (const nn::Segment& segment : set.segments()) {
    if (segment.spec.shape.size() != 1) continue;
    core::RandomStream random(1, segment.spec.name);
    const bool factor = segment.spec.name.ends_with("weight");
    float* const values = set.value(segment.id).data_ptr<float>();
    for (int64_t i = 0; i < segment.spec.shape[0]; ++i) {
      values[i] = factor ? random.uniform(0.5F, 1) : random.uniform(-0.1F, 0.1F);
    }
  }
}

// Gives batch norms the statistics of a batch, so that numbers keep their size from layer to layer: vanishing ones
// would become denormals, which cost some runtimes a hundred times as much.
void take_statistics(nn::Graph graph, nn::ParameterSet& set) {
  for (nn::Node& node : graph.nodes) {
    if (auto* const norm = std::get_if<nn::BatchNorm>(&node.op)) norm->decay = 0;
  }
  const at::NoGradGuard no_grad;
  const nn::Shape& image = graph.input_shape();
  nn::make_executor("cpu", graph, {.mode = nn::Mode::kTraining, .parameters = &set})
      ->forward(at::randn({4, image[0], image[1], image[2]}), {});
}

// The network, and one executor for each thread that may run it, which share the weights.
class Side {
 public:
  Side(const std::string& model, const std::string& dtype, int64_t batch)
      : graph_(nn::main_output_graph(models::build_model(model, "imagenet", {}))), batch_(batch) {
    // What a network in 8 bits computes in floats, such as attention, is bfloat16, as the other sides have it.
    context_ = {.dtype = dtype == "fp32" ? at::kFloat : at::kBFloat16,
                .mode = nn::Mode::kInference,
                .frozen = true,
                .kernels = {.choices = std::make_shared<nn::KernelChoices>()}};
    // Another seed at each start is LibTorch's default, but the ranges of values decide how quickly 8 bits are
    // multiplied.
    at::manual_seed(1);
    {
      const auto declares = nn::make_executor("cpu", graph_, {.mode = nn::Mode::kInference, .parameters = set_.get()});
      set_->allocate();
      set_->initialize(1);
      draw_vectors(*set_);
      take_statistics(graph_, *set_);
    }
    images_ = at::randn({batch, graph_.input_shape()[0], graph_.input_shape()[1], graph_.input_shape()[2]});
    if (dtype == "int8") {
      std::vector<at::Tensor> batches;
      for (int i = 0; i < 8; ++i) batches.push_back(at::randn(images_.slice(0, 0, 1).sizes()));
      const nn::QuantizedModel quantized = nn::quantize(
          graph_, *set_, batches, {.ranges = nn::RangeMethod::kMinMax, .method = nn::QuantizeMethod::kPlain});
      graph_ = quantized.graph;
      set_ = quantized.parameters;
      context_.quantization = quantized.quantization;
    }
    context_.parameters = set_.get();
  }

  void write(const std::string& path) const { nn::write_onnx(path, graph_, *set_, context_.quantization.get()); }
  double gflop() const { return 1e-9 * static_cast<double>(graph_.forward_flops()); }

  // Images a second: of each thread the batch by its median time, all threads together.
  double measure(int streams, double seconds) {
    const int threads = std::max(1, core::available_cores() / streams);
    std::vector<std::unique_ptr<nn::Executor>>& executors = executors_[streams];
    if (executors.empty()) {
      const core::ScopedIntraOpThreads own(threads);
      for (int i = 0; i < streams; ++i) executors.push_back(nn::make_executor("cpu", graph_, context_));
    }
    std::vector<double> rates(static_cast<size_t>(streams));
    std::vector<core::Thread> running;
    for (int i = 0; i < streams; ++i) {
      running.emplace_back(core::ThreadOptions{.name = "stream", .intra_op_threads = threads}, [&, i] {
        rates[static_cast<size_t>(i)] = rate_of(*executors[static_cast<size_t>(i)], seconds);
      });
    }
    for (core::Thread& thread : running) thread.join();
    double sum = 0;
    for (const double rate : rates) sum += rate;
    return sum;
  }

 private:
  double rate_of(nn::Executor& executor, double seconds) const {
    const at::NoGradGuard no_grad;
    for (int i = 0; i < kWarmUp; ++i) executor.forward(images_, {});
    std::vector<double> times;
    const auto begin = Clock::now();
    while (times.size() < kFewestTimes || core::seconds_since(begin) < seconds) {
      const auto start = Clock::now();
      executor.forward(images_, {});
      times.push_back(core::seconds_since(start));
    }
    std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
    return static_cast<double>(batch_) / times[times.size() / 2];
  }

  nn::Graph graph_;
  const int64_t batch_;
  std::shared_ptr<nn::ParameterSet> set_ = std::make_shared<nn::ParameterSet>();
  nn::BuildContext context_;
  at::Tensor images_;
  std::map<int, std::vector<std::unique_ptr<nn::Executor>>> executors_;  // by streams
};

}  // namespace

int main(int count, char** arguments) try {
  const std::string dtype = count > 2 ? arguments[2] : "";
  if (count < 4 || count > 5 || (dtype != "fp32" && dtype != "bf16" && dtype != "int8")) {
    fmt::print(stderr, "usage: inference_side MODEL fp32|bf16|int8 BATCH [FILE.onnx]\n");
    return 2;
  }
  // On a thread that ends, with its team: where there are more members of teams than cores, libgomp lets none of them
  // spin at a barrier, and a small batch on two cores takes three times as long.
  std::optional<Side> prepared;
  core::Thread({.name = "prepare", .intra_op_threads = core::available_cores()}, [&] {
    prepared.emplace(arguments[1], dtype, std::stoll(arguments[3]));
    if (count > 4) prepared->write(arguments[4]);
  }).join();
  Side& side = *prepared;
  const auto limits = core::load_machine_limits();
  const bool known = limits && dtype != "int8";
  fmt::print("{{\"gflop\": {:.4f}, \"gflops\": {:.1f}}}\n", side.gflop(),
             known ? 1e-9 * limits->flops(dtype == "bf16") : 0.0);
  std::fflush(stdout);
  int streams = 0;
  double seconds = 0;
  while (std::cin >> streams >> seconds && streams > 0) {
    fmt::print("{{\"images_per_sec\": {:.3f}}}\n", side.measure(streams, seconds));
    std::fflush(stdout);
  }
  return 0;
} catch (const core::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return core::exit_code(error.code());
}
