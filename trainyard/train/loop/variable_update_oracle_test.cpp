// The variable updates of one process against tf_cnn_benchmarks' oracle and its definition, for every optimizer
// (train/testing/variable_update_oracle.h). Those between processes: processes_oracle_test.cpp.
#include "trainyard/train/testing/variable_update_oracle.h"

#include <atomic>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/train/testing/memory_source.h"
#include "trainyard/train/testing/two_scalars.h"

namespace trainyard::train::variable_update_oracle_test {
namespace {

OracleLosses losses_of(const OracleLayout& layout, const OracleOptimizer& optimizer, int steps = 4) {
  return joined(layout, {train_oracle_share(layout, 0, optimizer, steps)});
}

TEST(VariableUpdateOracle, ParameterServerSgd) {
  expect_oracle_losses(
      losses_of({.mode = "parameter_server"}, oracle_optimizer("sgd")),
      {.total = {1.15625, 8.385638, 5.532262, -9.585484}, .base = {1.0, 8.238235, 5.438459, -9.662707}});
}

TEST(VariableUpdateOracle, ReplicatedSgd) {
  expect_oracle_losses(
      losses_of({.mode = "replicated"}, oracle_optimizer("sgd")),
      {.total = {1.15625, 7.638742, -2.596950, -35.271504}, .base = {1.0, 7.499817, -2.661401, -35.448971}});
}

// tf_cnn_benchmarks' test of this name, in the same floats and within its bounds. Activations are rounded, so that the
// losses are not those of 32 bits.
TEST(VariableUpdateOracle, testFp16) {
  for (const char* mode : {"parameter_server", "replicated"}) {
    SCOPED_TRACE(mode);
    OracleLayout layout{.mode = mode};
    const OracleLosses in_32 = losses_of(layout, oracle_optimizer("sgd"));
    layout.dtype = at::kHalf;
    const OracleLosses in_16 = losses_of(layout, oracle_optimizer("sgd"));
    expect_oracle_losses(in_16, oracle_losses(layout, oracle_optimizer("sgd"), 4), kOracleTolerance16);
    EXPECT_NE(in_16.base[2], in_32.base[2]);
  }
}

TEST(VariableUpdateOracle, EveryOptimizerFollowsItsDefinitionInEveryMode) {
  ASSERT_GE(oracle_optimizers().size(), 24U);
  for (const OracleOptimizer& optimizer : oracle_optimizers()) {
    for (const char* mode : {"parameter_server", "replicated", "independent"}) {
      for (const int replicas : {1, 2, 3}) {
        const OracleLayout layout{.mode = mode, .replicas = {replicas}};
        SCOPED_TRACE(testing::Message() << optimizer.text << ", " << mode << ", " << replicas << " replicas");
        const int steps = replicas == 3 ? 3 : 4;  // sums of more gradients run away at this rate
        expect_oracle_losses(losses_of(layout, optimizer, steps), oracle_losses(layout, optimizer, steps));
      }
    }
  }
}

// Returns how the replicas of one process exchange gradients.
std::function<std::vector<std::unique_ptr<core::Communicator>>()> exchange_by(
    int replicas, const parallel::AllReduceOptions& all_reduce) {
  return [=] { return parallel::make_thread_communicators(replicas, all_reduce.choice()); };
}

std::vector<parallel::AllReduceOptions> all_reduces_of_cpus() {
  std::vector<parallel::AllReduceOptions> all = {{.spec = "psgpu#2"},
                                                 {.spec = "xring#2"},
                                                 {.spec = "collective#2"},
                                                 {.spec = "pscpu:2k:xring"},
                                                 {.hierarchical_copy = true}};
  for (const std::string& algorithm : parallel::all_reduce_algorithms()) {
    if (!algorithm.starts_with("nccl")) all.push_back({.spec = algorithm});
  }
  return all;
}

// tf_cnn_benchmarks' testVariousAllReduceSpecs, which takes pscpu and psgpu, with every algorithm and every packing.
// Two numbers have one sum, whatever the order: there the losses have the bits of those without a spec.
TEST(VariableUpdateOracle, testVariousAllReduceSpecs) {
  const OracleOptimizer sgd = oracle_optimizer("sgd");
  ASSERT_GE(all_reduces_of_cpus().size(), 14U);
  for (const parallel::AllReduceOptions& all_reduce : all_reduces_of_cpus()) {
    for (const parallel::GradientPacking& packing :
         {parallel::GradientPacking{}, {.parts = 3}, {.small_bytes = 4}, {.separate = true}}) {
      SCOPED_TRACE(testing::Message() << "spec '" << all_reduce.spec << "', " << packing.parts << " parts, "
                                      << packing.small_bytes << " bytes");
      const OracleLayout two{.mode = "replicated", .packing = packing};
      const OracleLosses losses = joined(two, {train_oracle_share(two, 0, sgd, 4, exchange_by(2, all_reduce))});
      expect_oracle_losses(losses, {.total = {1.15625, 7.638742, -2.596950, -35.271504},
                                    .base = {1.0, 7.499817, -2.661401, -35.448971}});
      EXPECT_EQ(losses.base, losses_of({.mode = "replicated"}, sgd).base) << "exactly";
      const OracleLayout three{.mode = "distributed_all_reduce", .replicas = {3}, .packing = packing};
      expect_oracle_losses(joined(three, {train_oracle_share(three, 0, sgd, 3, exchange_by(3, all_reduce))}),
                           oracle_losses(three, sgd, 3));
    }
  }
}

// Passes everything on, and counts the all-reduces that are started.
class CountingCommunicator final : public core::Communicator {
 public:
  CountingCommunicator(std::unique_ptr<core::Communicator> inner, std::atomic<int>& count)
      : inner_(std::move(inner)), count_(count) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(at::Tensor tensor, core::ReduceOp op) override { inner_->all_reduce(tensor, op); }
  std::unique_ptr<core::PendingCollective> start_all_reduce(at::Tensor tensor, core::ReduceOp op) override {
    ++count_;
    return inner_->start_all_reduce(tensor, op);
  }
  void broadcast(at::Tensor tensor, int root) override { inner_->broadcast(tensor, root); }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return inner_->all_gather(tensor); }
  void barrier() override { inner_->barrier(); }
  void abort(const core::Error& error) override { inner_->abort(error); }

 private:
  std::unique_ptr<core::Communicator> inner_;
  std::atomic<int>& count_;
};

// Two scalars: one all-reduce of both, or as many as they are packed into, by each of two replicas in each of 4 steps.
TEST(VariableUpdateOracle, GradientsAreReducedAsTheyArePacked) {
  const auto all_reduces = [](const parallel::GradientPacking& packing) {
    std::atomic<int> count = 0;
    const OracleLayout layout{.mode = "replicated", .packing = packing};
    train_oracle_share(layout, 0, oracle_optimizer("sgd"), 4, [&count] {
      std::vector<std::unique_ptr<core::Communicator>> counting;
      for (auto& communicator : parallel::make_thread_communicators(2)) {
        counting.push_back(std::make_unique<CountingCommunicator>(std::move(communicator), count));
      }
      return counting;
    });
    return count.load();
  };
  EXPECT_EQ(all_reduces({}), 2 * 4 * 1);
  EXPECT_EQ(all_reduces({.parts = 5}), 2 * 4 * 5);
  EXPECT_EQ(all_reduces({.separate = true}), 2 * 4 * 2);
  EXPECT_EQ(all_reduces({.small_bytes = 4}), 2 * 4 * 1);
  EXPECT_EQ(all_reduces({.small_bytes = 4, .small_group = 1}), 2 * 4 * 2);
}

TEST(VariableUpdateOracle, TheTwoTopologiesOfHierarchicalCopy) {
  const OracleOptimizer sgd = oracle_optimizer("sgd");
  for (const auto topology : {parallel::NetworkTopology::kDgx1, parallel::NetworkTopology::kGcpV100}) {
    for (const bool separate : {false, true}) {
      const OracleLayout eight{.mode = "replicated",
                               .replicas = {8},
                               .reduction = parallel::GradientReduction::kMean,
                               .packing = {.separate = separate}};
      expect_oracle_losses(
          joined(eight, {train_oracle_share(eight, 0, sgd, 3,
                                            exchange_by(8, {.hierarchical_copy = true, .topology = topology}))}),
          oracle_losses(eight, sgd, 3));
    }
  }
  const OracleLayout two{.mode = "replicated"};
  EXPECT_EQ(core::problem_of([&] {
              train_oracle_share(
                  two, 0, sgd, 1,
                  exchange_by(2, {.hierarchical_copy = true, .topology = parallel::NetworkTopology::kGcpV100}));
            }),
            "HierarchicalCopy only supports eight devices in gcp_v100");
}

TEST(VariableUpdateOracle, DistributedAllReduceOfOneProcessIsReplicated) {
  for (const OracleOptimizer& optimizer : oracle_optimizers()) {
    SCOPED_TRACE(optimizer.text);
    EXPECT_EQ(losses_of({.mode = "distributed_all_reduce"}, optimizer).total,
              losses_of({.mode = "replicated"}, optimizer).total);
  }
}

TEST(VariableUpdateOracle, TheReductionCanBeChosen) {
  for (const OracleLayout& layout :
       {OracleLayout{.mode = "replicated", .reduction = parallel::GradientReduction::kMean},
        OracleLayout{.mode = "parameter_server", .reduction = parallel::GradientReduction::kSum}}) {
    SCOPED_TRACE(layout.mode);
    const OracleOptimizer optimizer = oracle_optimizer("sgd");
    expect_oracle_losses(losses_of(layout, optimizer), oracle_losses(layout, optimizer, 4));
  }
}

// Two micro-steps of batch 2 on one replica are the mean over two devices; and on two replicas.
TEST(VariableUpdateOracle, MicroStepsAverage) {
  const OracleOptimizer optimizer = oracle_optimizer("tf_nesterov");
  const OracleLayout one{.mode = "parameter_server", .replicas = {1}, .micro_steps = 2};
  expect_oracle_losses(losses_of(one, optimizer), oracle_losses({.mode = "parameter_server"}, optimizer, 4));
  for (const char* mode : {"parameter_server", "replicated"}) {
    const OracleLayout two{.mode = mode, .micro_steps = 2};
    SCOPED_TRACE(mode);
    expect_oracle_losses(losses_of(two, optimizer, 3), oracle_losses(two, optimizer, 3));
  }
}

class LossRecorder : public Callback {
 public:
  std::vector<double> base;
  std::string name() const override { return "loss_recorder"; }
  void after_step(Trainer& trainer, const StepView&) override {
    base.push_back(dynamic_cast<TowerTrainer&>(trainer).last_base_loss());
  }
};

// Foreign modules draw from ATen's generator: its state is part of the run.
TEST(TowerTrainer, ContinuesTheRandomNumbersOfForeignModules) {
  const TowerTrainerOptions options{
      .graph = two_scalars(true),
      .loss = loss_of([](const at::Tensor& output, const at::Tensor&) { return output.mean(); }),
      .threads = {.intra_op_threads = 1},
      .seed = 5,
      .make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); },
      .learning_rate = optim::constant(1.0 / 16)};
  const auto source = [] {
    return std::make_shared<MemorySource>(at::arange(-1, 15, at::kFloat).view({16, 1, 1, 1}),
                                          at::zeros({16}, at::kLong), 2);
  };
  const auto run = [&](TowerTrainer& trainer, int64_t from, int64_t to) {
    auto recorder = std::make_shared<LossRecorder>();
    trainer.add(recorder);
    trainer.train({.steps_per_epoch = to, .starting_step = from});
    return recorder->base;
  };
  TowerTrainer straight(options, source());
  const std::vector<double> expected = run(straight, 0, 6);

  core::MemoryState saved;
  {
    TowerTrainer first(options, source());
    const std::vector<double> losses = run(first, 0, 3);
    EXPECT_EQ(losses, std::vector<double>(expected.begin(), expected.begin() + 3));
    first.save(saved);
  }
  TowerTrainer second(options, source());
  at::rand({100});
  second.load(saved);
  EXPECT_EQ(run(second, 3, 6), std::vector<double>(expected.begin() + 3, expected.end()));
}

}  // namespace
}  // namespace trainyard::train::variable_update_oracle_test
