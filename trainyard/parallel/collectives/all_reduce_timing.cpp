#include "trainyard/parallel/collectives/all_reduce_timing.h"

#include <algorithm>
#include <chrono>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "trainyard/core/base/elapsed.h"

namespace trainyard::parallel {

std::vector<double> time_each(int64_t times, const std::function<void()>& barrier, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < times; ++i) {
    barrier();
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(core::seconds_since(begin));
  }
  return seconds;
}

std::vector<double> slowest_of_ranks(core::Communicator& self, const std::vector<double>& own) {
  if (own.empty()) return {};
  const at::Tensor slowest = at::empty({static_cast<int64_t>(own.size())}, at::kDouble);
  auto* const values = slowest.mutable_data_ptr<double>();
  std::copy(own.begin(), own.end(), values);
  self.all_reduce(slowest, core::ReduceOp::kMax);
  return {values, values + own.size()};
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

at::Tensor exchanged_zeros(core::Communicator& self, int64_t elements) {
  const at::Tensor exchanged = self.new_exchanged(elements, at::kFloat);
  return exchanged.defined() ? exchanged : at::full({elements}, 0.0F);
}

std::vector<std::vector<double>> time_in_turns(const std::vector<TimedOperation>& operations, int64_t times,
                                               int64_t turn) {
  std::vector<std::vector<double>> seconds(operations.size());
  for (int64_t done = 0; done < times; done += turn) {
    for (size_t i = 0; i < operations.size(); ++i) {
      const std::vector<double> some = operations[i].run(std::min(turn, times - done));
      seconds[i].insert(seconds[i].end(), some.begin(), some.end());
    }
  }
  return seconds;
}

}  // namespace trainyard::parallel
