// The variable updates between processes against tf_cnn_benchmarks' oracle and its definition
// (train/testing/variable_update_oracle.h): over processes that are threads, each with a trainer of its own, and, where
// mpirun has started this program, over real ones.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"
#include "trainyard/train/testing/variable_update_oracle.h"

namespace trainyard::train::processes_oracle_test {
namespace {

using parallel::GradientReduction;

constexpr auto kMinute = std::chrono::minutes(1);

OracleLosses losses_over_processes(const OracleLayout& layout, const OracleOptimizer& optimizer, int steps) {
  const auto transports = parallel::make_memory_transports(static_cast<int>(layout.replicas.size()));
  std::vector<OracleShare> shares(transports.size());
  std::vector<core::Thread> processes;
  for (size_t p = 0; p < transports.size(); ++p) {
    processes.emplace_back(core::ThreadOptions{.name = "process"}, [&, p] {
      const auto exchange = parallel::ProcessEngine::start(transports[p], kMinute);
      shares[p] = train_oracle_share(layout, static_cast<int>(p), optimizer, steps, [&] {
        return parallel::make_process_communicators(exchange, layout.replicas[p], kMinute);
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

}  // namespace
}  // namespace trainyard::train::processes_oracle_test
