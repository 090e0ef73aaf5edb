// The part of `trainyard bench allreduce` that measures the reduction of a model's gradients and the update of its
// parameters: each for itself, and in one (parallel::Sharding), compared with a copy of as many bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/cli/bench_all_reduce.h"
#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/parallel/variable_update/variable_update.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::cli {

// Operations, in AllReduceBenchReport::updates:
//
//   copy                  the parameters' bytes, by each rank
//   optimizer             by each rank, of all parameters
//   optimizer of a part   by each rank, of its part
//   reduce, then update   as without --sharded_update
//   reduce and update     in one pass, as with --on_nan=ignore
//   checked in between    in two passes: no update is begun before all ranks know that gradients are finite
class UpdateBench {
 public:
  // Collective over the processes. `graph` declares the parameters. Throws what the optimizer's name and sharding
  // throw.
  UpdateBench(const AllReduceBenchOptions& options, const train::OpenDevices& devices, const nn::Graph& graph,
              AllReduceBenchReport& report);
  // Measures on the replica's thread. Rank 0 writes the report.
  void run(int replica);
  void abort(const core::Error& error);

 private:
  enum Operation { kCopy, kOptimizer, kPart, kSeparate, kFused, kChecked, kOperations };

  void execute(Operation operation, int replica);
  parallel::VariableUpdate& update_of(Operation operation) const;

  const AllReduceBenchOptions& options_;
  AllReduceBenchReport& report_;
  std::vector<std::unique_ptr<core::Communicator>> communicators_;  // of barriers and results
  std::unique_ptr<parallel::VariableUpdate> whole_, fused_, checked_;
  // By replica: an optimizer of its part, and where a copy goes.
  std::vector<std::unique_ptr<optim::Optimizer>> parts_;
  std::vector<at::Tensor> copies_;
  optim::StepState state_;
};

// Returns the table of the updates; empty without any.
std::string update_bench_table(const AllReduceBenchReport& report);

}  // namespace trainyard::cli
