#include "trainyard/nn/execution/sync_batch_norm.h"

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "trainyard/core/base/elapsed.h"

namespace trainyard::nn {
namespace {

// Counts the time until it ends.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += core::seconds_since(begin_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

SyncBatchNorm::SyncBatchNorm(std::unique_ptr<core::Communicator> communicator)
    : communicator_(std::move(communicator)) {}

void SyncBatchNorm::all_reduce_moments(const at::Tensor& moments) {
  if (paused_) return;
  const Stopwatch stopwatch(seconds_);
  const at::NoGradGuard without_gradients;
  const std::vector<at::Tensor> all = communicator_->all_gather(moments);
  const int64_t channels = moments.numel() / 2;
  double* const mean = moments.mutable_data_ptr<double>();
  double* const variance = mean + channels;
  double count = 0;
  for (const at::Tensor& one : all) {
    const auto* const other_mean = one.const_data_ptr<double>();
    const auto* const other_variance = other_mean + channels;
    const double other_count = other_mean[2 * channels], before = count;
    count += other_count;
    const double share = other_count / count;
    for (int64_t c = 0; c < channels; ++c) {
      if (before == 0) {
        mean[c] = other_mean[c];
        variance[c] = other_variance[c];
        continue;
      }
      const double apart = other_mean[c] - mean[c];
      mean[c] += apart * share;
      variance[c] += (other_variance[c] - variance[c] + apart * apart * (before / count)) * share;
    }
  }
  mean[2 * channels] = count;
}

void SyncBatchNorm::all_reduce_sum(const at::Tensor& values) {
  if (paused_) return;
  const Stopwatch stopwatch(seconds_);
  communicator_->all_reduce(values, core::ReduceOp::kSum);
}

}  // namespace trainyard::nn
