#include "trainyard/parallel/collectives/gradient_buckets.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

GradientBuckets::GradientBuckets(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                                 int64_t bytes)
    : set_(set), communicator_(communicator), op_(op), bucket_of_(set.size()), ready_(set.size()) {
  constexpr int64_t kMost = core::Communicator::kMostStarted / 2;
  const auto width = static_cast<int64_t>(c10::elementSize(set.dtype()));
  const int64_t elements = communicator.progresses_in_background() ? std::max(bytes / width, set.total() / kMost + 1)
                                                                   : std::numeric_limits<int64_t>::max();
  buckets_.emplace_back();
  for (size_t s = 0; s < set.segments().size(); ++s) {
    const nn::Segment& segment = set.segments()[s];
    const bool last = s + 1 == set.segments().size();
    const int64_t end = last ? set.total() : set.segments()[s + 1].offset;
    bucket_of_[static_cast<size_t>(segment.id.index)] = buckets_.size() - 1;
    Bucket& bucket = buckets_.back();
    bucket.missing = ++bucket.segments;
    bucket.count = end - bucket.begin;
    if (!last && bucket.count >= elements) buckets_.push_back({.begin = end});
  }
}

std::unique_ptr<core::PendingCollective> GradientBuckets::start(const Bucket& bucket) {
  return communicator_.start_all_reduce(set_.gradients().narrow(0, bucket.begin, bucket.count), op_);
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
  while (started_.size() < buckets_.size() && buckets_[started_.size()].missing == 0) {
    started_.push_back(start(buckets_[started_.size()]));
  }
}

void GradientBuckets::reduce() {
  std::vector<std::unique_ptr<core::PendingCollective>> all = std::exchange(started_, {});
  ready_.assign(ready_.size(), false);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.segments;
  for (size_t b = all.size(); b < buckets_.size(); ++b) all.push_back(start(buckets_[b]));
  for (const auto& bucket : all) bucket->wait();
}

}  // namespace trainyard::parallel
