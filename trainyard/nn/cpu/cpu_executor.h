// The executor for CPUs (docs/design/cpu_engine.md): plans with oneDNN's convolutions and kernels of our own, in
// blocked layout. fp32, or bf16 with fp32 master weights and statistics. Registered as "cpu".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "trainyard/nn/cpu/plan/plan.h"
#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn {

class CpuExecutor : public Executor {
 public:
  // Throws kUnsupported for a dtype other than float and bfloat16, or another device.
  CpuExecutor(const Graph& graph, const BuildContext& context);

  // Compiles a plan for each new batch size. The plans of a few sizes are kept. Networks in 8 bits compute large
  // batches in pieces, one after the other, whose maps stay in the last-level cache; results have the same bits.
  core::NamedTensors run(const core::NamedTensors& inputs, const StepRandom& random) override;

  // Returns the plan's memory; packed weights count once for each batch size.
  std::optional<ExecutorMemory> prepare(int64_t batch) override;

  // A plan with the memory of its last run, which is reused when the backward of that run is not needed any more.
  struct Compiled {
    std::unique_ptr<cpu::Plan> plan;
    std::shared_ptr<cpu::Run> run;
  };

 private:
  std::shared_ptr<Compiled> compiled(int64_t batch, std::vector<bool> input_gradients);
  std::vector<at::Tensor> run_plan(const std::vector<at::Tensor>& given, const StepRandom& random);
  // Returns into how many pieces, of nearly equal size, a batch is divided.
  int64_t pieces(int64_t batch);

  cpu::Plan::Layers layers_;
  std::vector<std::shared_ptr<Compiled>> plans_;  // most recently used last
  int64_t sample_bytes_ = 0;                      // memory for a sample's activations in 8 bits; 0: not known yet
  uint64_t choices_version_ = 0;                  // version of the run's kernel choices for which the plans are valid
  uint64_t trainable_version_ = 0;                // version of the parameter set for which plans for training are valid
};

}  // namespace trainyard::nn
