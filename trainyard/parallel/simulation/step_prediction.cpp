#include "trainyard/parallel/simulation/step_prediction.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/gradient_buckets.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::ErrorCode;

// When the links of the ranks are free. Exchanges pass them in the order in which they begin.
class Links {
 public:
  explicit Links(const LinkModel& link) : link_(link) {}

  // Returns when an exchange that may begin at `ready` is done. Each bucket may have another busiest rank; on the links
  // of all others it takes less.
  double exchange(const ExchangeCost& cost, double ready) {
    const double busy = link_.seconds(0, cost.busy_bytes), common = link_.seconds(0, cost.common_bytes);
    if (!free_.contains(cost.busiest)) free_[cost.busiest] = others_free_;
    others_free_ = std::max(others_free_, ready) + common;
    double last = others_free_;
    for (auto& [rank, free] : free_) {
      free = std::max(free, ready) + (rank == cost.busiest ? busy : common);
      if (rank == cost.busiest) last = std::max(last, free);
    }
    return last + std::max(0.0, cost.seconds(link_) - busy);
  }

 private:
  const LinkModel link_;
  std::map<int, double> free_;  // of ranks that were busiest
  double others_free_ = 0;
};

StepPrediction prediction_of(const ComputeProfile& profile, int workers, double exchanged_at, double after) {
  const double computed_at = profile.before_seconds + profile.backward_seconds;
  StepPrediction step{.workers = workers, .exposed_seconds = std::max(0.0, exchanged_at - computed_at)};
  step.step_seconds = computed_at + step.exposed_seconds + after;
  const double one = profile.step_seconds();
  step.efficiency = step.step_seconds > 0 ? one / step.step_seconds : 1;
  if (step.step_seconds > 0) {
    step.images_per_second = static_cast<double>(workers * profile.batch_size) / step.step_seconds;
  }
  return step;
}

void require_workers(int workers) {
  if (workers > 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "a step without workers", .expected = "at least 1", .actual = std::to_string(workers)});
}

Error impossible_profile(const std::string& problem, const std::string& where = {}) {
  return {ErrorCode::kInvalidArgument, {.problem = problem, .where = where}};
}

}  // namespace

int64_t ComputeProfile::elements() const {
  int64_t sum = 0;
  for (const ProfiledBucket& bucket : buckets) sum += bucket.elements;
  return sum;
}

void ComputeProfile::validate() const {
  if (batch_size < 1) throw impossible_profile("a step of no images", fmt::format("batch size {}", batch_size));
  for (const double seconds : {before_seconds, backward_seconds, after_seconds}) {
    if (!(seconds >= 0))
      throw impossible_profile("a part of a step takes less than no time", fmt::format("{} s", seconds));
  }
  double before = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const ProfiledBucket& bucket = buckets[i];
    const std::string where = fmt::format("bucket {} of {}", i + 1, buckets.size());
    if (bucket.elements < 1) throw impossible_profile("a bucket of no gradients", where);
    if (!(bucket.ready_seconds >= before))
      throw impossible_profile("a bucket is ready before the one in front of it", where);
    // Sums of the same times in another order differ in their last digits.
    if (bucket.ready_seconds > backward_seconds * (1 + 1e-9)) {
      throw impossible_profile("a bucket is ready after the end of the backward", where);
    }
    before = bucket.ready_seconds;
  }
}

std::vector<ProfiledBucket> profiled_buckets(const nn::ParameterSet& set, const std::vector<LayerBackward>& layers,
                                             double backward_seconds, int64_t bucket_bytes) {
  double sum = 0;
  for (const LayerBackward& layer : layers) sum += layer.seconds;
  if (!(sum > 0)) throw impossible_profile("the layers' backward takes no time");
  std::map<std::string, double> ready;
  double passed = 0;
  for (const LayerBackward& layer : layers) {
    passed += layer.seconds;
    for (const std::string& parameter : layer.parameters) ready[parameter] = passed / sum * backward_seconds;
  }
  std::vector<ProfiledBucket> buckets;
  auto segment = set.segments().begin();
  double last = 0;  // a bucket leaves after those in front of it
  for (const GradientSlice& slice : bucket_slices(set, bucket_bytes)) {
    for (; segment != set.segments().end() && segment->offset < slice.begin + slice.count; ++segment) {
      const auto found = ready.find(segment->spec.name);
      if (found == ready.end()) {
        throw Error(ErrorCode::kInvalidArgument, {.problem = "a parameter is in no layer whose time is known",
                                                  .where = segment->spec.name,
                                                  .remedy = "take the times of the same model"});
      }
      last = std::max(last, found->second);
    }
    if (slice.count > 0) buckets.push_back({slice.count, std::min(last, backward_seconds)});
  }
  return buckets;
}

std::vector<ExchangeCost> all_reduce_costs(const ComputeProfile& profile, const AlgorithmChoice& choose, int workers) {
  require_workers(workers);
  std::vector<ExchangeCost> costs;
  for (size_t i = 0; i < profile.buckets.size(); ++i) {
    costs.push_back(all_reduce_cost(choose, workers, profile.buckets[i].elements, i));
  }
  return costs;
}

StepPrediction predict_all_reduce_step(const ComputeProfile& profile, const std::vector<ExchangeCost>& costs,
                                       int workers, const LinkModel& link) {
  require_workers(workers);
  profile.validate();
  link.validate();
  Links links(link);
  double done = 0;
  for (size_t i = 0; workers > 1 && i < profile.buckets.size(); ++i) {
    const double ready = profile.before_seconds + profile.buckets[i].ready_seconds;
    done = std::max(done, links.exchange(costs.at(i), ready));
  }
  return prediction_of(profile, workers, done, profile.after_seconds);
}

StepPrediction predict_server_step(const ComputeProfile& profile, int workers, int servers, const LinkModel& link) {
  require_workers(workers);
  profile.validate();
  link.validate();
  if (servers < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "parameters without a server", .expected = "at least 1 server", .actual = std::to_string(servers)});
  }
  const double computed = profile.before_seconds + profile.backward_seconds;
  const double bytes = static_cast<double>(profile.elements()) * sizeof(float);
  // Gradients and values take the same way in opposite directions. Between them a server answers that all workers have
  // sent theirs, and is asked for values.
  const double both_ways = 2 * server_cost(workers, servers, bytes).seconds(link) + link.seconds(2, 0);
  return prediction_of(profile, workers, computed + both_ways, profile.after_seconds / servers);
}

}  // namespace trainyard::parallel
