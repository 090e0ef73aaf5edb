// The gradients of one replica on their way to the others, in buckets: runs of segments that leave together, in the
// order of the segments, which is that in which a backward finishes them. A bucket leaves when all of it is ready and
// those before it have left, so all ranks start the same buckets in the same order, whatever is ready on each of them
// and when: one that cannot let its gradients leave early starts all of them in reduce().
//
// Where nothing goes on while a replica computes (Communicator::goes_on_alone()), there is one bucket, which leaves in
// reduce().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::parallel {

// Used by the replica's thread.
class GradientBuckets {
 public:
  // `set` is allocated; it and the communicator outlive this. A bucket ends with the segment that brings it to `bytes`;
  // where that would make more buckets than may be on their way, they are larger.
  GradientBuckets(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op, int64_t bytes);

  // See VariableUpdate::ready().
  void ready(nn::ParameterId parameter);
  // Starts what has not left, and blocks until all has come back. Collective over all ranks. After an error the next
  // one begins anew.
  void reduce();

  size_t count() const { return buckets_.size(); }
  // Returns how many buckets have left since the last reduce().
  size_t left() const { return started_.size(); }

 private:
  struct Bucket {
    int64_t begin = 0, count = 0;  // elements of the set's gradients, with the gaps behind segments
    int segments = 0;
    int missing = 0;  // segments that are not ready
  };
  std::unique_ptr<core::PendingCollective> start(const Bucket& bucket);

  const nn::ParameterSet& set_;
  core::Communicator& communicator_;
  const core::ReduceOp op_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // by ParameterId
  std::vector<bool> ready_;        // by ParameterId
  std::vector<std::unique_ptr<core::PendingCollective>> started_;
};

}  // namespace trainyard::parallel
