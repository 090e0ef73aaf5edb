// Predicts how long a training step takes on N workers: the compute of a worker, as it was measured, and the exchange
// of its gradients, which leave in buckets while the backward still runs (collectives/gradient_buckets.h).
//
//   ComputeProfile profile = ...;                      // measured, or by hand
//   std::vector<ExchangeCost> costs = all_reduce_costs(profile, choice, 4);
//   StepPrediction step = predict_all_reduce_step(profile, costs, 4, {.latency_seconds = 5e-5, .bytes_per_second
//   = 1.25e9});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/simulation/exchange_cost.h"

namespace trainyard::parallel {

struct ProfiledBucket {
  int64_t elements = 0;      // floats
  double ready_seconds = 0;  // from the backward's begin until its last gradient is complete
};

// A step of one worker without any exchange.
struct ComputeProfile {
  std::string model{};
  int64_t batch_size = 1;     // images of a worker
  double before_seconds = 0;  // input, forward, loss: all before the backward
  double backward_seconds = 0;
  double after_seconds = 0;               // update, and what else follows the exchange
  std::vector<ProfiledBucket> buckets{};  // in the order in which they leave

  double step_seconds() const { return before_seconds + backward_seconds + after_seconds; }
  int64_t elements() const;
  // Throws kInvalidArgument for times below 0, a bucket that is ready after the backward or before the bucket in front
  // of it, and a batch of no images.
  void validate() const;
};

// The time that a backward spends in one layer, and its parameters by name.
struct LayerBackward {
  std::vector<std::string> parameters{};
  double seconds = 0;
};

// Returns the buckets of the gradients of `set`, which is allocated, of `bucket_bytes` as in
// VariableUpdateOptions::bucket_bytes. `layers`: in the order in which the backward passes them; a gradient is complete
// at the end of its layer. The layers' times are scaled so that their sum is `backward_seconds`. Throws
// kInvalidArgument for layers without any time and for a parameter that is in no layer.
std::vector<ProfiledBucket> profiled_buckets(const nn::ParameterSet& set, const std::vector<LayerBackward>& layers,
                                             double backward_seconds, int64_t bucket_bytes);

struct StepPrediction {
  int workers = 1;
  double step_seconds = 0;
  double images_per_second = 0;  // of all workers
  double efficiency = 1;         // images a second by `workers` times those of one worker
  double exposed_seconds = 0;    // of communication that no compute hides
};

// Returns the costs of the buckets of a step, in their order, among `workers` (all_reduce_cost()).
std::vector<ExchangeCost> all_reduce_costs(const ComputeProfile& profile, const AlgorithmChoice& choose, int workers);

// Returns the step of workers that all-reduce their gradients. The exchanges of several buckets are on their way
// together: their latencies overlap, and their bytes wait for each other on the links. costs[i] is that of
// profile.buckets[i]. Throws as validate() of the profile and the link do.
StepPrediction predict_all_reduce_step(const ComputeProfile& profile, const std::vector<ExchangeCost>& costs,
                                       int workers, const LinkModel& link);

// Returns the step of workers that send all gradients to `servers` after the backward, and receive all values when the
// last worker's have come (docs/design/parameter_servers.md). Each server has a link of its own, which all workers
// share, and updates its part of the parameters. Throws as above, and kInvalidArgument without servers.
StepPrediction predict_server_step(const ComputeProfile& profile, int workers, int servers, const LinkModel& link);

// A measured all-reduce of one tensor.
struct MeasuredAllReduce {
  int64_t bytes = 0;
  double seconds = 0;
};

// Returns the link with which the costs of all-reduces among `ranks` come nearest to their measured times. Its
// bandwidth is that of the least squares, in which the largest tensors count most; its latency is what is left of the
// time of the smallest one. Throws kInvalidArgument for fewer than two sizes, fewer than two ranks and times that are
// not above 0, and where larger tensors were not slower.
LinkModel fit_link(const AlgorithmChoice& choose, int ranks, const std::vector<MeasuredAllReduce>& measured);

}  // namespace trainyard::parallel
