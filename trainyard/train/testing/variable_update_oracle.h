// tf_cnn_benchmarks' oracle for variable updates: loss = mean(x) * A * B with A = 1, B = 2, and x = -1, 0, 1, ... in
// order, two of them a replica and step; weight decay and learning rate are 1/16. Here are trainings of it over any
// communicators, and the losses by definition, in double. The model is a torch::nn::Module with a loss of its own.
//
//   const OracleLayout layout{.mode = "horovod", .replicas = {1, 1}};
//   for (const OracleOptimizer& optimizer : oracle_optimizers()) {
//     std::vector<OracleShare> shares;                  // of all processes
//     shares.push_back(train_oracle_share(layout, process, optimizer, 4, make_communicators));
//     expect_oracle_losses(joined(layout, shares), oracle_losses(layout, optimizer, 4));
//   }
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

// Who trains together.
struct OracleLayout {
  std::string mode;                                        // a name of parallel::variable_updates()
  std::vector<int> replicas{2};                            // of each process
  std::optional<parallel::GradientReduction> reduction{};  // none: the mode's own
  int micro_steps = 1;                                     // with two numbers a replica each
  parallel::GradientPacking packing{};
  at::ScalarType dtype = at::kFloat;  // of activations; kHalf scales the loss by 128, as tf_cnn_benchmarks does

  int all() const;               // replicas
  int first(int process) const;  // global index of the process's first replica
  bool sums() const;             // gradients, over replicas
  bool exchanges() const { return mode != "independent"; }
};

struct OracleNumbers {
  double momentum = 0.8, dampening = 0;
  bool nesterov = false;
  double mean_square_decay = 0.85;
  bool centered = false;
  double beta1 = 0.7, beta2 = 0.95, epsilon = 0.125, trust_coefficient = 0.25;
  bool bias_correction = true;
  double weight_decay = 0;
  bool decoupled_decay = false;
  bool delayed = false;  // apply gradients one step later; oracle_losses() does not know it
};

struct OracleOptimizer {
  std::string name;  // of optim::optimizers()
  OracleNumbers options;
  std::string text;  // for messages

  // Returns the options with those numbers that the optimizer has.
  optim::OptimizerOptions library_options() const;
};
// Returns all optimizers whose definitions the oracle knows, with the forms that their options choose among.
std::vector<OracleOptimizer> oracle_optimizers();
OracleOptimizer oracle_optimizer(const std::string& name);

// The losses of each step: the mean over replicas, before its update; `total` has the L2 loss of replica 0's values.
struct OracleLosses {
  std::vector<double> total, base;
};
// Returns the losses by definition. Throws kInternal for an optimizer that it does not know.
OracleLosses oracle_losses(const OracleLayout& layout, const OracleOptimizer& optimizer, int steps);

// One process's part of the losses: the sum of the base loss over its replicas, and the rest of its total.
struct OracleShare {
  std::vector<double> base, beside;
};
// Trains a process's replicas. `make_communicators` as in TowerTrainerOptions, `servers` as in OpenDevices.
OracleShare train_oracle_share(
    const OracleLayout& layout, int process, const OracleOptimizer& optimizer, int steps,
    std::function<std::vector<std::unique_ptr<core::Communicator>>()> make_communicators = {},
    std::shared_ptr<parallel::ServerGroup> servers = nullptr);
// Joins the shares of all processes. The test fails where they differ in what all should have.
OracleLosses joined(const OracleLayout& layout, const std::vector<OracleShare>& shares);

// Expects each loss to be as wanted, but for this part of it. tf_cnn_benchmarks allows 0.03 in 16 bits.
inline constexpr double kOracleTolerance = 1e-5, kOracleTolerance16 = 0.03;
void expect_oracle_losses(const OracleLosses& actual, const OracleLosses& wanted, double tolerance = kOracleTolerance);

}  // namespace trainyard::train
