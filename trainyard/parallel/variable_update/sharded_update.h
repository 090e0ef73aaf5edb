// Reduction and update in one, of ranks that read and write each other's memory (Communicator::peer_views): each rank
// reduces its part of the gradients, updates that part of the values, and writes it into the values of all ranks. So a
// gradient is read once, and no reduced gradient is written to the others. The optimizer has the slots of its part
// alone. docs/design/shared_memory.md counts the bytes.
//
// Sums are in the order of ranks, as all_reduce() has them, so the values have the bits of an update by every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::parallel {

// That of one rank, for its thread.
class ShardedUpdate {
 public:
  struct Options {
    core::ReduceOp op = core::ReduceOp::kSum;
    // Whether gradients are finite is known after reduce(), which costs a pass over them; otherwise after update().
    bool decides_before_update = true;
    std::string obstacle{};  // why this rank cannot update parts; empty: nothing is known against it
  };
  // What make() returns: an update, or why there is none.
  struct Made {
    std::unique_ptr<ShardedUpdate> update{};
    std::string obstacle{};
  };
  // Collective. Lets the optimizer keep this rank's part. Either all ranks get an update, or none does. All arguments
  // must outlive the update; values and gradients of `set` are from communicator.new_exchanged(). Throws kNoSpace when
  // slots find no memory that others can read.
  static Made make(core::Communicator& communicator, nn::ParameterSet& set, optim::Optimizer& optimizer,
                   const Options& options);

  // Collective. With decides_before_update, reduces this rank's part into its own gradients. When one of all reduced
  // gradients is not finite, each rank gets all of them, so that it can say which. Otherwise does nothing.
  void reduce();
  // Collective. Updates the values of all ranks. `state` is the same on all. Returns the seconds that it has waited.
  double update(const optim::StepState& state);

  // Returns whether all reduced gradients of the last step were finite, on any rank.
  bool finite() const { return finite_; }
  bool decides_before_update() const { return options_.decides_before_update; }

 private:
  ShardedUpdate(core::Communicator& communicator, nn::ParameterSet& set, optim::Optimizer& optimizer, Options options);
  // Share slots with the others, and return false when their memory is out of reach.
  bool share_slots();

  void* own_gradients(int64_t begin) const;
  // Reduces elements [begin, begin + count) into `result`. Returns whether they are finite.
  bool reduce_run(int64_t begin, int64_t count, void* result) const;
  // Writes elements of this rank's block into those of all other ranks.
  void publish(const std::vector<void*>& blocks, int64_t begin, int64_t count) const;
  // Collective: returns when all ranks have come, and sets finite() for all. An all-reduce rather than a barrier, so
  // that whoever waits for a rank, and what is said of one that does not come, names the same operation as without
  // sharding.
  void agree(bool finite);

  core::Communicator& communicator_;
  nn::ParameterSet& set_;
  optim::Optimizer& optimizer_;
  const Options options_;
  const at::ScalarType type_;
  const size_t width_;  // bytes of an element
  std::vector<at::Tensor> value_views_, gradient_views_;
  std::vector<void*> values_, gradients_;  // by rank
  optim::Optimizer::Part part_;
  bool streams_ = false;  // publish() writes around the caches
  at::Tensor flag_;       // [1] int32
  bool finite_ = true;
};

}  // namespace trainyard::parallel
