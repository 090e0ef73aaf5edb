// What a run spends its time on, node by node: an executor reports what it has run, an observer adds it up, writes a
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

  std::span<const int> nodes;  // ids in the executor's graph; several for a fused unit, none for work that serves no
                               // node alone (packing all weights)
  Phase phase = Phase::kForward;
  std::string_view kernel;  // for people: "convolution 3x3 winograd"
  // Wall time on the thread that calls; on a device that runs behind that thread, of the hand-over only.
  Clock::time_point begin, end;
  // Where the executor knows them. Bytes: moved between memory and caches, at least. Flops: by the layer's definition
  // (multiply-accumulates times two), however few a clever kernel needs.
  std::optional<int64_t> bytes, flops;
};

class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  // On the same thread before the work, where the executor hands it to a device that may tell what it ran.
  virtual void begins() {}
  // On the thread that runs the executor, after the work. May throw: the step then ends with that error.
  virtual void ran(const NodeRun& run) = 0;
};

}  // namespace trainyard::nn
