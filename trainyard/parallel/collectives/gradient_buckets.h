// All-reduces the gradients of one replica in buckets, overlapped with the backward pass. A bucket is a run of
// segments, in the order in which a backward finishes them. Its all-reduce starts when all of its gradients are ready
// and the buckets before it have started, so all ranks start the same buckets in the same order, at whatever time their
// gradients are ready. A rank that cannot start early starts all of them in reduce().
//
// When nothing progresses while a replica computes (Communicator::progresses_in_background()), there is one bucket,
// which starts in reduce(). Buckets that a caller gives are kept, whatever progresses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::parallel {

// A slice of a ParameterSet's gradients, in elements.
struct GradientSlice {
  int64_t begin = 0, count = 0;
  bool operator==(const GradientSlice&) const = default;
};

// Returns the slices of a set's gradients that leave together while a replica computes: each ends with the segment that
// brings it to `bytes`, and has the gaps after its segments. Slices are larger when there would be more of them than
// may be pending.
std::vector<GradientSlice> bucket_slices(const nn::ParameterSet& set, int64_t bytes);

// Used by the replica's thread.
class GradientBuckets {
 public:
  // `set` is allocated; it and the communicator must outlive this. The buckets are those of bucket_slices().
  GradientBuckets(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op, int64_t bytes);
  // The buckets are these slices, in the order of memory. Each gradient is in one of them, or in several that adjoin.
  GradientBuckets(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                  const std::vector<GradientSlice>& slices);

  // See VariableUpdate::ready().
  void ready(nn::ParameterId parameter);
  // Starts the all-reduces that have not started, and blocks until all are done. Collective over all ranks. After an
  // error the next step starts from the beginning.
  void reduce();

  size_t count() const { return buckets_.size(); }
  // Returns how many buckets have started since the last reduce().
  size_t left() const { return started_.size(); }

 private:
  struct Bucket {
    GradientSlice slice{};
    int segments = 0;
    int missing = 0;  // segments that are not ready
  };
  // Adds each segment to the first bucket that has a part of it. Those behind it leave later, when it is ready, too.
  void assign_segments();
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
