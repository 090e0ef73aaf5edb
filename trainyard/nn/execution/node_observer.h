// Observes what a run spends its time on, node by node. An executor reports its work; an observer sums it, writes a
// trace or prints a table.
//
//   class Printer : public nn::NodeObserver { void ran(const nn::NodeRun& run) override { ... } } printer;
//   executor->set_observer(&printer);
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trainyard::nn {

// One piece of work. A step may report several of the same nodes and phase (a kernel each): they add up, and no two
// that an executor reports overlap. Spans and names are valid during the call that gets them.
struct NodeRun {
  enum class Phase { kForward, kBackward };
  using Clock = std::chrono::steady_clock;

  std::span<const int> nodes{};  // ids in the executor's graph; several for a fused unit, none for work that belongs to
                                 // no node alone (packing all weights)
  Phase phase = Phase::kForward;
  std::string_view kernel{};  // name for reports: "convolution 3x3 winograd"
  // Wall time on the calling thread. On an asynchronous device it is only the time of enqueueing.
  Clock::time_point begin{}, end{};
  // Set when the executor knows them. Bytes are a lower bound of those moved between memory and caches. Flops are those
  // of the layer's definition (multiply-accumulates times two), even if a kernel needs fewer.
  std::optional<int64_t> bytes{}, flops{};
};

class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  // Called before the work, on the same thread, when the executor enqueues it on a device that can be traced.
  virtual void begins() {}
  // Called after the work, on the thread that runs the executor. May throw: the step then ends with that error.
  virtual void ran(const NodeRun& run) = 0;
};

}  // namespace trainyard::nn
