#include "trainyard/data/pipeline/sample_order.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"

namespace trainyard::data {

void OrderOptions::validate() const {
  if (shuffle_buffer < 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "shuffle buffer is too small",
                                                          .expected = "at least 1 sample",
                                                          .actual = fmt::format("{}", shuffle_buffer)});
  }
  if (!(shift_ratio >= 0 && shift_ratio < 1)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "shift ratio is out of range",
                                                          .expected = "0 <= shift_ratio < 1",
                                                          .actual = fmt::format("{}", shift_ratio)});
  }
}

std::vector<int64_t> epoch_order(int64_t size, const OrderOptions& options, uint64_t seed, int64_t epoch) {
  options.validate();
  std::vector<int64_t> order;
  order.reserve(size);
  const auto start = static_cast<int64_t>(std::floor(options.shift_ratio * static_cast<double>(size)));
  const auto in_file_order = [&](int64_t k) { return start + k < size ? start + k : start + k - size; };
  if (!options.shuffle) {
    for (int64_t k = 0; k < size; ++k) order.push_back(in_file_order(k));
    return order;
  }

  core::RandomStream random(seed, "input_order", {static_cast<uint64_t>(epoch)});
  std::vector<int64_t> buffer;
  int64_t next = 0;
  while (next < std::min(options.shuffle_buffer, size)) buffer.push_back(in_file_order(next++));
  while (!buffer.empty()) {
    int64_t& slot = buffer[random.below(buffer.size())];
    order.push_back(slot);
    if (next < size) {
      slot = in_file_order(next++);
    } else {
      slot = buffer.back();
      buffer.pop_back();
    }
  }
  return order;
}

}  // namespace trainyard::data
