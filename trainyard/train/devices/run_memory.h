// Estimates the memory that a run will need, before its first step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::train {

// Bytes, over all replicas.
struct RunMemory {
  int64_t parameters = 0;  // values and buffers
  int64_t gradients = 0;
  int64_t optimizer = 0;  // slots of the optimizer
  // nullopt for an executor that does not plan its memory.
  std::optional<nn::ExecutorMemory> executor = nn::ExecutorMemory{};
  int64_t program = 0;  // memory of the process before that: code, libraries, input

  // Adds gradients, and values and buffers when the set owns them (values may be shared with a set that was added
  // before).
  void add(const nn::ParameterSet& set, bool shares_values);
  // Does the same for a set whose gradients are never used.
  void add_constant(const nn::ParameterSet& set, bool shares_values);
  void add(const std::optional<nn::ExecutorMemory>& more);
  int64_t total() const;
};

// Returns "memory: 98 MiB parameters, 98 MiB gradients, ... ; 2,104 MiB in all". Without the executor's part, it says
// "and activations" for the unknown part.
[[nodiscard]] std::string memory_line(const RunMemory& memory);

// Returns the resident memory of this process: VmRSS of /proc/self/status, 0 when the system does not say.
[[nodiscard]] int64_t resident_bytes();

}  // namespace trainyard::train
