#include "trainyard/parallel/collectives/gradient_buckets.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

// Half of what may be pending, so that a communicator can have others in between.
constexpr size_t kMostPendingBuckets = core::Communicator::kMostStarted / 2;

// Returns slices that end with the segment that fills them, and have the gaps after segments.
std::vector<GradientSlice> slices_of(const nn::ParameterSet& set, int64_t elements) {
  std::vector<GradientSlice> slices(1);
  for (size_t s = 0; s < set.segments().size(); ++s) {
    const bool last = s + 1 == set.segments().size();
    const int64_t end = last ? set.total() : set.segments()[s + 1].offset;
    GradientSlice& slice = slices.back();
    slice.count = end - slice.begin;
    if (!last && slice.count >= elements) slices.push_back({.begin = end});
  }
  return slices;
}

std::vector<GradientSlice> slices_for(const nn::ParameterSet& set, const core::Communicator& communicator,
                                      int64_t bytes) {
  if (communicator.progresses_in_background()) return bucket_slices(set, bytes);
  return slices_of(set, std::numeric_limits<int64_t>::max());
}

}  // namespace

std::vector<GradientSlice> bucket_slices(const nn::ParameterSet& set, int64_t bytes) {
  const auto width = static_cast<int64_t>(c10::elementSize(set.dtype()));
  return slices_of(set, std::max(bytes / width, set.total() / static_cast<int64_t>(kMostPendingBuckets) + 1));
}

GradientBuckets::GradientBuckets(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                                 int64_t bytes)
    : GradientBuckets(set, communicator, op, slices_for(set, communicator, bytes)) {}

GradientBuckets::GradientBuckets(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                                 const std::vector<GradientSlice>& slices)
    : set_(set), communicator_(communicator), op_(op), bucket_of_(set.size()), ready_(set.size()) {
  buckets_.reserve(slices.size());
  for (const GradientSlice& slice : slices) buckets_.push_back({.slice = slice});
  assign_segments();
}

void GradientBuckets::assign_segments() {
  size_t bucket = 0;
  for (const nn::Segment& segment : set_.segments()) {
    const auto ends_before = [&](const GradientSlice& slice) { return slice.begin + slice.count <= segment.offset; };
    while (bucket + 1 < buckets_.size() && ends_before(buckets_[bucket].slice)) ++bucket;
    bucket_of_[static_cast<size_t>(segment.id.index)] = bucket;
    buckets_[bucket].missing = ++buckets_[bucket].segments;
  }
}

std::unique_ptr<core::PendingCollective> GradientBuckets::start(const Bucket& bucket) {
  return communicator_.start_all_reduce(set_.gradients().narrow(0, bucket.slice.begin, bucket.slice.count), op_);
}

void GradientBuckets::ready(nn::ParameterId parameter) {
  if (!communicator_.progresses_in_background()) return;
  const auto index = static_cast<size_t>(parameter.index);
  if (ready_.at(index)) {
    throw Error(ErrorCode::kInternal, {.problem = "a gradient is complete for the second time before its reduction",
                                       .where = set_.segment(parameter).spec.name,
                                       .remedy = "call reduce() behind each backward whose gradients were ready"});
  }
  ready_[index] = true;
  --buckets_[bucket_of_[index]].missing;
  while (started_.size() < std::min(buckets_.size(), kMostPendingBuckets) && buckets_[started_.size()].missing == 0) {
    started_.push_back(start(buckets_[started_.size()]));
  }
}

void GradientBuckets::reduce() {
  std::vector<std::unique_ptr<core::PendingCollective>> all = std::exchange(started_, {});
  ready_.assign(ready_.size(), false);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.segments;
  size_t done = 0;
  while (all.size() < buckets_.size()) {
    if (all.size() - done == kMostPendingBuckets) all[done++]->wait();
    all.push_back(start(buckets_[all.size()]));
  }
  for (; done < all.size(); ++done) all[done]->wait();
}

}  // namespace trainyard::parallel
