// The variable updates between processes against tf_cnn_benchmarks' oracle and its definition
// (train/testing/variable_update_oracle.h): over processes that are threads, each with a trainer of its own, and, where
// mpirun has started this program, over real ones.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"
#include "trainyard/train/testing/variable_update_oracle.h"

namespace trainyard::train::processes_oracle_test {
namespace {

using parallel::GradientReduction;

constexpr auto kMinute = std::chrono::minutes(1);

OracleLosses losses_over_processes(const OracleLayout& layout, const OracleOptimizer& optimizer, int steps,
                                   const parallel::AllReduceOptions& all_reduce = {}) {
  const auto transports = parallel::make_memory_transports(static_cast<int>(layout.replicas.size()));
  std::vector<OracleShare> shares(transports.size());
  std::vector<core::Thread> processes;
  for (size_t p = 0; p < transports.size(); ++p) {
    processes.emplace_back(core::ThreadOptions{.name = "process"}, [&, p] {
      const auto exchange = parallel::ProcessEngine::start(transports[p], kMinute);
      shares[p] = train_oracle_share(layout, static_cast<int>(p), optimizer, steps, [&] {
        return parallel::make_process_communicators(exchange, layout.replicas[p], kMinute, all_reduce.choice());
      });
    });
  }
  for (core::Thread& process : processes) process.join();
  return joined(layout, shares);
}

TEST(ProcessesOracle, TwoProcessesAreTheTwoDevicesOfTfCnnBenchmarks) {
  const OracleOptimizer sgd = oracle_optimizer("sgd");
  expect_oracle_losses(
      losses_over_processes({.mode = "horovod", .replicas = {1, 1}}, sgd, 4),
      {.total = {1.15625, 8.385638, 5.532262, -9.585484}, .base = {1.0, 8.238235, 5.438459, -9.662707}});
  for (const std::vector<int>& replicas : {std::vector{1, 1}, std::vector{2}}) {
    expect_oracle_losses(
        losses_over_processes({.mode = "collective_all_reduce", .replicas = replicas}, sgd, 4),
        {.total = {1.15625, 7.638742, -2.596950, -35.271504}, .base = {1.0, 7.499817, -2.661401, -35.448971}});
  }
}

TEST(ProcessesOracle, EveryOptimizerFollowsItsDefinitionInEveryMode) {
  const std::vector<OracleLayout> layouts = {
      {.mode = "horovod", .replicas = {1, 1}},
      {.mode = "horovod", .replicas = {1, 1}, .reduction = GradientReduction::kSum},
      {.mode = "horovod", .replicas = {1, 1, 1}, .micro_steps = 2},
      {.mode = "collective_all_reduce", .replicas = {1, 1}},
      {.mode = "collective_all_reduce", .replicas = {1, 2}},
      {.mode = "collective_all_reduce", .replicas = {2, 2}, .reduction = GradientReduction::kMean}};
  for (const OracleOptimizer& optimizer : oracle_optimizers()) {
    for (const OracleLayout& layout : layouts) {
      SCOPED_TRACE(testing::Message() << optimizer.text << ", " << layout.mode << ", " << layout.replicas.size()
                                      << " processes, " << (layout.sums() ? "sum" : "mean"));
      // Sums over three replicas run away at this rate.
      const int steps = layout.all() > 2 ? 3 : 4;
      expect_oracle_losses(losses_over_processes(layout, optimizer, steps), oracle_losses(layout, optimizer, steps));
    }
  }
}

const OracleLosses kSumsOfTwo = {.total = {1.15625, 7.638742, -2.596950, -35.271504},
                                 .base = {1.0, 7.499817, -2.661401, -35.448971}};

// tf_cnn_benchmarks' testVarUpdateDefault of distributed_all_reduce: its controller prints the mean of the workers'
// losses.
TEST(ProcessesOracle, DistributedAllReduce) {
  const OracleOptimizer sgd = oracle_optimizer("sgd");
  for (const std::vector<int>& replicas : {std::vector{1, 1}, std::vector{2}}) {
    expect_oracle_losses(losses_over_processes({.mode = "distributed_all_reduce", .replicas = replicas}, sgd, 4),
                         kSumsOfTwo);
  }
}

// Four replicas of two processes exchange by `spec`, and two of two.
void expect_distributed_all_reduce(const std::string& spec, bool separate) {
  const OracleOptimizer sgd = oracle_optimizer("sgd");
  const OracleLayout two{.mode = "distributed_all_reduce", .replicas = {1, 1}, .packing = {.separate = separate}};
  expect_oracle_losses(losses_over_processes(two, sgd, 4, {.spec = spec}), kSumsOfTwo);
  const OracleLayout four{.mode = "distributed_all_reduce",
                          .replicas = {2, 2},
                          .reduction = GradientReduction::kMean,
                          .packing = {.separate = separate}};
  expect_oracle_losses(losses_over_processes(four, sgd, 4, {.spec = spec}), oracle_losses(four, sgd, 4));
}

TEST(ProcessesOracle, testAllReducePsgpu) {
  expect_distributed_all_reduce("psgpu#2", false);
  const OracleOptimizer sgd = oracle_optimizer("sgd");
  const OracleLayout four{.mode = "distributed_all_reduce", .replicas = {2, 2}, .reduction = GradientReduction::kMean};
  expect_oracle_losses(losses_over_processes(four, sgd, 4, {.spec = "psgpu#4"}), oracle_losses(four, sgd, 4));
}

TEST(ProcessesOracle, testAllReducePscpuXring) {
  expect_distributed_all_reduce("pscpu:2k:xring", true);
}

TEST(ProcessesOracle, CollectiveAllReduceHasInstances) {
  const OracleOptimizer sgd = oracle_optimizer("sgd");
  for (const char* spec : {"collective", "collective#2"}) {
    SCOPED_TRACE(spec);
    const OracleLayout layout{.mode = "collective_all_reduce", .replicas = {1, 1}, .packing = {.parts = 2}};
    expect_oracle_losses(losses_over_processes(layout, sgd, 4, {.spec = spec}), kSumsOfTwo);
  }
}

// Horovod's compression: gradients travel in 16 bits. tf_cnn_benchmarks' tests of fp16 allow 3 %.
TEST(ProcessesOracle, GradientsThatTravelIn16Bits) {
  const OracleOptimizer sgd = oracle_optimizer("sgd");
  const OracleLayout layout{.mode = "horovod", .replicas = {1, 1}};
  const OracleLosses exact = oracle_losses(layout, sgd, 4);
  for (const at::ScalarType wire : {at::kHalf, at::kBFloat16}) {
    const OracleLosses losses = losses_over_processes(layout, sgd, 4, {.wire = wire});
    for (size_t step = 0; step < 4; ++step) {
      EXPECT_NEAR(losses.total[step], exact.total[step], 3e-2 * std::abs(exact.total[step])) << "step " << step;
    }
    EXPECT_NE(losses.total, losses_over_processes(layout, sgd, 4).total) << "nothing is rounded";
  }
}

}  // namespace
}  // namespace trainyard::train::processes_oracle_test
