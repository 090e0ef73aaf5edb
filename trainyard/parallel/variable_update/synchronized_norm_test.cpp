// Batch norms that meet those of other replicas (nn/execution/sync_batch_norm.h), by both executors: against
// PyTorch's numbers (tools/golden/synchronized_norm.py), against differences in double, and when a replica fails.
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/sync_batch_norm.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"

namespace trainyard::parallel::synchronized_norm_test {
namespace {

using core::ErrorCode;

at::Tensor wave(at::IntArrayRef shape, double step) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return (at::arange(count, at::kDouble) * step + 0.3).sin().reshape(shape);
}

// A replica's executor with its own parameters.
struct Replica {
  Replica(const std::string& executor_name, const nn::Graph& graph, at::ScalarType dtype,
          std::unique_ptr<core::Communicator> communicator)
      : set({.dtype = dtype == at::kDouble ? at::kDouble : at::kFloat}), sink(set) {
    if (communicator != nullptr) exchange.emplace(std::move(communicator));
    executor = nn::make_executor(executor_name, graph,
                                 {.dtype = dtype,
                                  .kernels = {.convolutions = nn::ConvolutionPolicy::kByShape},
                                  .parameters = &set,
                                  .gradients = &sink,
                                  .sync_batch_norm = exchange ? &*exchange : nullptr});
    set.allocate();
    set.initialize(1);
  }
  // Runs forward, and backward of sum(output * cotangent). Returns the output, whose inputs then have gradients.
  at::Tensor pass(const core::NamedTensors& inputs, const at::Tensor& cotangent) {
    const at::AutoGradMode with_gradients(true);
    sink.begin(0, 1);
    const core::NamedTensors outputs = executor->run(inputs, {});
    const at::Tensor output = outputs.begin()->tensor;
    (output * cotangent.to(output.scalar_type())).sum().backward();
    sink.finish();
    return output.detach();
  }

  nn::ParameterSet set;
  nn::GradientSink sink;
  std::optional<nn::SyncBatchNorm> exchange;
  std::unique_ptr<nn::Executor> executor;
};

std::vector<std::unique_ptr<Replica>> make_replicas(const std::string& executor, const nn::Graph& graph,
                                                    at::ScalarType dtype, int count,
                                                    std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (auto& communicator : make_thread_communicators(count)) {
    communicator->set_deadline(deadline);
    replicas.push_back(std::make_unique<Replica>(executor, graph, dtype, std::move(communicator)));
  }
  return replicas;
}

// Calls work(replica) on a thread each. Returns what each of them threw.
std::vector<std::optional<core::Error>> on_threads(size_t count, const std::function<void(size_t)>& work) {
  std::vector<std::optional<core::Error>> errors(count);
  std::vector<core::Thread> threads;
  for (size_t r = 0; r < count; ++r) {
    threads.emplace_back(core::ThreadOptions{.name = "replica", .intra_op_threads = 1},
                         [&, r] { errors[r] = core::error_of([&] { work(r); }); });
  }
  for (core::Thread& thread : threads) thread.join();
  return errors;
}

void expect_none(const std::vector<std::optional<core::Error>>& errors) {
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

// As in the script.
struct GoldenCase {
  const char* name;
  double epsilon, decay;
  bool scale, fused;
};
constexpr GoldenCase kCases[] = {{"torch", 1e-5, 0.9, true, true}, {"keras", 1e-3, 0.99, false, false}};
constexpr int64_t kBatches[] = {2, 1, 3};
constexpr int64_t kChannels = 5;

nn::Graph norm_graph(const GoldenCase& c) {
  const nn::Shape image{kChannels, 2, 3};
  nn::GraphBuilder b({.image = image, .name = "norm"});
  auto y = b.batch_norm("bn", b.input(), {.epsilon = c.epsilon, .decay = c.decay, .scale = c.scale});
  if (c.fused) y = b.activation("relu", b.add("add", {y, b.input("added", image)}));
  return b.build(y);
}

// PyTorch's numbers by "<case> <replica> <what>".
std::map<std::string, at::Tensor> golden() {
  std::ifstream file("trainyard/parallel/testdata/synchronized_norm.txt");
  std::map<std::string, at::Tensor> result;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, replica, what;
    words >> name >> replica >> what;
    std::vector<double> values;
    for (double value = 0; words >> value;) values.push_back(value);
    result[name + " " + replica + " " + what] = at::tensor(values, at::kDouble);
  }
  return result;
}

void expect_golden(const std::string& executor, at::ScalarType dtype, double bound) {
  const auto expected = golden();
  ASSERT_EQ(expected.size(), 36U);
  size_t compared = 0;
  for (const GoldenCase& c : kCases) {
    const auto replicas = make_replicas(executor, norm_graph(c), dtype, 3);
    std::vector<std::map<std::string, at::Tensor>> actual(3);
    expect_none(on_threads(3, [&](size_t r) {
      const at::NoGradGuard no_grad;
      nn::ParameterSet& set = replicas[r]->set;
      if (c.scale) set.value(*set.find("bn.weight")).copy_(1 + 0.5 * wave({kChannels}, 1.3));
      set.value(*set.find("bn.bias")).copy_(wave({kChannels}, 2.1));
      set.values_changed();
      set.buffer(0).fill_(0.25);
      set.buffer(1).fill_(2);
      const auto number = static_cast<double>(r);
      const std::vector<int64_t> shape{kBatches[r], kChannels, 2, 3};
      core::NamedTensors inputs;
      inputs.set("images", (wave(shape, 0.7 + number) * (number + 1) + 0.5 * number).to(dtype).requires_grad_());
      if (c.fused) inputs.set("added", wave(shape, 1.7 + number).to(dtype).requires_grad_());
      actual[r]["output"] = replicas[r]->pass(inputs, wave(shape, 0.9 + number));
      actual[r]["input"] = inputs["images"].grad();
      if (c.fused) actual[r]["added"] = inputs["added"].grad();
      if (c.scale) actual[r]["weight"] = set.gradient(*set.find("bn.weight"));
      actual[r]["bias"] = set.gradient(*set.find("bn.bias"));
      actual[r]["mean"] = set.buffer(0);
      actual[r]["variance"] = set.buffer(1);
    }));
    for (size_t r = 0; r < 3; ++r) {
      for (const auto& [what, value] : actual[r]) {
        const at::Tensor& wanted = expected.at(std::string(c.name) + " " + std::to_string(r) + " " + what);
        const double error = (value.to(at::kDouble).flatten() - wanted).abs().max().item<double>();
        EXPECT_LT(error, bound * wanted.abs().max().item<double>()) << c.name << ", replica " << r << ": " << what;
        ++compared;
      }
      EXPECT_TRUE(at::equal(replicas[r]->set.buffer(0), replicas[0]->set.buffer(0))) << "the same bits everywhere";
      EXPECT_TRUE(at::equal(replicas[r]->set.buffer(1), replicas[0]->set.buffer(1)));
    }
  }
  EXPECT_EQ(compared, expected.size());
}

TEST(SynchronizedNorm, TheReferenceComputesWhatPyTorchDoesOfTheJoinedBatch) {
  expect_golden("reference", at::kDouble, 1e-12);
  expect_golden("reference", at::kFloat, 1e-5);
}

TEST(SynchronizedNorm, ThePlanComputesWhatPyTorchDoesOfTheJoinedBatch) {
  expect_golden("cpu", at::kFloat, 1e-5);
}

// Inputs are rounded to 8 bits, and so are sums and outputs.
TEST(SynchronizedNorm, ThePlanComputesSoInBfloat16) {
  expect_golden("cpu", at::kBFloat16, 0.03);
}

// Two norms with other layers between, an addition and a path around the second one.
nn::Graph small_network(nn::Activation::Function function) {
  nn::GraphBuilder b({.image = {3, 5, 4}, .name = "small"});
  auto x = b.convolution("conv1", b.input(), {.out_channels = 20, .kernel = 3, .padding = nn::Padding::all(1)});
  const auto trunk = b.activation("act1", b.batch_norm("bn1", x), function);
  x = b.convolution("conv2", trunk, {.out_channels = 20, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.activation("act2", b.add("add", {b.batch_norm("bn2", x), trunk}), function);
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 4}));
}

// The derivative of what the replicas lower together: by the definition, and by the sum of their gradients.
TEST(SynchronizedNorm, GradientsAreThoseOfDifferences) {
  const auto replicas = make_replicas("reference", small_network(nn::Activation::Function::kTanh), at::kDouble, 2);
  const std::vector<at::Tensor> images{wave({2, 3, 5, 4}, 0.37), 1 + 2 * wave({3, 3, 5, 4}, 0.91)};
  const auto cost = [&] {
    std::vector<double> parts(2);
    expect_none(on_threads(2, [&](size_t r) {
      const at::Tensor output = replicas[r]->pass({{"images", images[r]}}, wave({images[r].size(0), 4}, 1.1));
      parts[r] = (output * wave(output.sizes(), 1.1)).sum().item<double>();
    }));
    return parts[0] + parts[1];
  };
  cost();
  const at::Tensor gradient = replicas[0]->set.gradients() + replicas[1]->set.gradients();
  ASSERT_GT(gradient.abs().max().item<double>(), 0.1);
  int compared = 0;
  for (const nn::Segment& segment : replicas[0]->set.segments()) {
    const int64_t last = replicas[0]->set.value(segment.id).numel() - 1;
    for (const int64_t place : {int64_t{0}, last / 2, last}) {
      const auto cost_at = [&](double change) {
        for (const auto& replica : replicas) {
          replica->set.value(segment.id).flatten()[place] += change;
          replica->set.values_changed();
        }
        return cost();
      };
      constexpr double kStep = 1e-5;
      const double up = cost_at(kStep), down = cost_at(-2 * kStep);
      cost_at(kStep);
      const at::Tensor own = replicas[0]->set.gradient(segment.id).flatten()[place] +
                             replicas[1]->set.gradient(segment.id).flatten()[place];
      EXPECT_NEAR(own.item<double>(), (up - down) / (2 * kStep), 1e-8) << segment.spec.name << " " << place;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 3 * 8);
}

// A whole network on the plan beside the reference, with shares of other sizes.
TEST(SynchronizedNorm, ThePlanTrainsNetworksAsTheReference) {
  const nn::Graph graph = small_network(nn::Activation::Function::kRelu);
  const std::vector<at::Tensor> images{wave({2, 3, 5, 4}, 0.37), 1 + 2 * wave({3, 3, 5, 4}, 0.91)};
  std::vector<std::vector<at::Tensor>> gradients(2), statistics(2);
  for (const size_t which : {0, 1}) {
    const auto replicas = make_replicas(which == 0 ? "reference" : "cpu", graph, at::kFloat, 2);
    expect_none(on_threads(2, [&](size_t r) {
      replicas[r]->pass({{"images", images[r].to(at::kFloat)}}, wave({images[r].size(0), 4}, 1.1));
    }));
    for (const auto& replica : replicas) {
      gradients[which].push_back(replica->set.gradients().clone());
      for (int b = 0; b < 4; ++b) statistics[which].push_back(replica->set.buffer(b).clone());
    }
  }
  const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).abs().max() / a.abs().max()).item<double>();
  };
  for (size_t r = 0; r < 2; ++r) EXPECT_LT(apart(gradients[0][r], gradients[1][r]), 1e-5) << r;
  for (size_t b = 0; b < 8; ++b) EXPECT_LT(apart(statistics[0][b], statistics[1][b]), 1e-5) << b;
}

// What a group of one computes has the bits of a norm that meets nobody; so has one that is paused.
TEST(SynchronizedNorm, AGroupOfOneIsAPlainBatchNorm) {
  const nn::Graph graph = small_network(nn::Activation::Function::kRelu);
  const at::Tensor images = wave({3, 3, 5, 4}, 0.37).to(at::kFloat), cotangent = wave({3, 4}, 1.1);
  Replica plain("cpu", graph, at::kFloat, nullptr);
  Replica alone("cpu", graph, at::kFloat, std::move(make_thread_communicators(1)[0]));
  Replica paused("cpu", graph, at::kFloat, std::move(make_thread_communicators(2)[0]));
  paused.exchange->set_paused(true);
  const at::Tensor output = plain.pass({{"images", images}}, cotangent);
  for (Replica* const other : {&alone, &paused}) {
    EXPECT_TRUE(at::equal(other->pass({{"images", images}}, cotangent), output));
    EXPECT_TRUE(at::equal(other->set.gradients(), plain.set.gradients()));
    for (int b = 0; b < 4; ++b) EXPECT_TRUE(at::equal(other->set.buffer(b), plain.set.buffer(b))) << b;
  }
}

TEST(SynchronizedNorm, MeetsNobodyInInferenceAndWhereItIsFrozen) {
  const nn::Graph graph = small_network(nn::Activation::Function::kRelu);
  const at::Tensor images = wave({3, 3, 5, 4}, 0.37).to(at::kFloat);
  for (const char* executor : {"cpu", "reference"}) {
    // The second of two replicas never comes.
    Replica waiting(executor, graph, at::kFloat, std::move(make_thread_communicators(2)[0]));
    for (const nn::Segment& segment : waiting.set.segments()) {
      if (segment.spec.name.starts_with("bn")) waiting.set.set_trainable(segment.id, false);
    }
    waiting.pass({{"images", images}}, wave({3, 4}, 1.1));
    const auto inference = nn::make_executor(
        executor, graph,
        {.mode = nn::Mode::kInference, .parameters = &waiting.set, .sync_batch_norm = &*waiting.exchange});
    EXPECT_EQ(inference->forward(images, {}).size(0), 3);
    EXPECT_EQ(waiting.exchange->seconds(), 0);
  }
}

TEST(SynchronizedNorm, AReplicaThatFailsWakesTheOthers) {
  const nn::Graph graph = small_network(nn::Activation::Function::kRelu);
  const at::Tensor images = wave({3, 3, 5, 4}, 0.37).to(at::kFloat);
  for (const char* executor : {"cpu", "reference"}) {
    for (const bool in_backward : {false, true}) {
      const auto replicas = make_replicas(executor, graph, at::kFloat, 2);
      const auto errors = on_threads(2, [&](size_t r) {
        const at::AutoGradMode with_gradients(true);
        replicas[r]->sink.begin(0, 1);
        if (r == 1 && !in_backward) return replicas[1]->exchange->abort({ErrorCode::kNoSpace, "the disk is full"});
        const at::Tensor output = replicas[r]->executor->forward(images, {});
        if (r == 1) return replicas[1]->exchange->abort({ErrorCode::kNoSpace, "the disk is full"});
        output.sum().backward();
      });
      ASSERT_TRUE(errors[0]) << executor;
      EXPECT_EQ(errors[0]->code(), ErrorCode::kPeerFailed);
      EXPECT_TRUE(core::says(*errors[0], "the disk is full")) << errors[0]->what();
    }
  }
}

TEST(SynchronizedNorm, WaitsNoLongerThanTheDeadline) {
  const auto replicas = make_replicas("cpu", small_network(nn::Activation::Function::kRelu), at::kFloat, 2,
                                      std::chrono::milliseconds(100));
  const auto errors = on_threads(1, [&](size_t r) {
    replicas[r]->executor->forward(wave({3, 3, 5, 4}, 0.37).to(at::kFloat), {});
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_EQ(errors[0]->code(), ErrorCode::kTimeout);
  EXPECT_GE(replicas[0]->exchange->seconds(), 0.1);
}

// Replicas that do not run the same network.
TEST(SynchronizedNorm, NormsOfDifferentWidthsAreRefused) {
  auto communicators = make_thread_communicators(2);
  Replica five("cpu", norm_graph(kCases[1]), at::kFloat, std::move(communicators[0]));
  Replica twenty("cpu", small_network(nn::Activation::Function::kRelu), at::kFloat, std::move(communicators[1]));
  const auto errors = on_threads(2, [&](size_t r) {
    r == 0 ? five.executor->forward(wave({2, kChannels, 2, 3}, 0.7).to(at::kFloat), {})
           : twenty.executor->forward(wave({2, 3, 5, 4}, 0.7).to(at::kFloat), {});
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(core::says(*error, "[11]") && core::says(*error, "[41]")) << error->what();
  }
}

// A large mean beside a small deviation, which sums of squares would lose.
TEST(SyncBatchNorm, CombinesMomentsAsTheJoinedBatchHasThem) {
  std::vector<std::vector<double>> batches{{1e8 + 1, 1e8 - 1, 1e8}, {1e8 + 5}, {1e8 - 2, 1e8 + 3}};
  std::vector<nn::SyncBatchNorm> exchanges;
  for (auto& communicator : make_thread_communicators(3)) exchanges.emplace_back(std::move(communicator));
  std::vector<at::Tensor> moments;
  for (const std::vector<double>& batch : batches) {
    const at::Tensor values = at::tensor(batch, at::kDouble), mean = values.mean();
    moments.push_back(at::tensor({mean.item<double>(), 7.0, (values - mean).square().mean().item<double>(), 0.0,
                                  static_cast<double>(batch.size())},
                                 at::kDouble));
  }
  expect_none(on_threads(3, [&](size_t r) { exchanges[r].all_reduce_moments(moments[r]); }));
  for (const at::Tensor& combined : moments) {
    EXPECT_TRUE(at::equal(combined, moments[0]));
    const double* const values = combined.const_data_ptr<double>();
    EXPECT_DOUBLE_EQ(values[0], 1e8 + 1);
    EXPECT_EQ(values[1], 7);
    EXPECT_NEAR(values[2], 34.0 / 6, 1e-7);  // of 0, -2, -1, 4, -3, 2 around the mean
    EXPECT_EQ(values[3], 0);
    EXPECT_EQ(values[4], 6);
  }
}

}  // namespace
}  // namespace trainyard::parallel::synchronized_norm_test
