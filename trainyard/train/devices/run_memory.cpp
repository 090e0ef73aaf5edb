#include "trainyard/train/devices/run_memory.h"

#include <cstdlib>

#include <fmt/format.h>

#include "trainyard/core/system/system_files.h"

namespace trainyard::train {
namespace {

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

void RunMemory::add(const nn::ParameterSet& set, bool shares_values) {
  add_constant(set, shares_values);
  gradients += static_cast<int64_t>(set.gradients().nbytes());
}

void RunMemory::add_constant(const nn::ParameterSet& set, bool shares_values) {
  if (!shares_values) parameters += static_cast<int64_t>(set.values().nbytes());
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
    parameters += static_cast<int64_t>(set.buffer(i).nbytes());
  }
}

void RunMemory::add(const std::optional<nn::ExecutorMemory>& more) {
  if (!more) executor.reset();
  if (!executor) return;
  executor->activations += more->activations;
  executor->packed_weights += more->packed_weights;
}

int64_t RunMemory::total() const {
  const int64_t planned = executor ? executor->activations + executor->packed_weights : 0;
  return parameters + gradients + optimizer + planned + program;
}

std::string memory_line(const RunMemory& memory) {
  std::string line = fmt::format("memory: {} parameters, {} gradients, {} optimizer", mebibytes(memory.parameters),
                                 mebibytes(memory.gradients), mebibytes(memory.optimizer));
  if (memory.executor) line += fmt::format(", {} activations", mebibytes(memory.executor->activations));
  if (memory.executor && memory.executor->packed_weights > 0) {
    line += fmt::format(", {} packed weights", mebibytes(memory.executor->packed_weights));
  }
  line += fmt::format(", {} program and input; {} in all", mebibytes(memory.program), mebibytes(memory.total()));
  return memory.executor ? line : line + " and activations, which this executor does not plan";
}

int64_t resident_bytes() {
  const std::optional<std::string> status = core::read_system_file("/proc/self/status");
  return status ? std::strtoll(core::proc_value(*status, "VmRSS").c_str(), nullptr, 10) * 1024 : 0;  // "123456 kB"
}

}  // namespace trainyard::train
