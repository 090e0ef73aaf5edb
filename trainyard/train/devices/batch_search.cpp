#include "trainyard/train/devices/batch_search.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::train {
namespace {

// The rest is for memory that is not planned: other programs, the allocator's rounding, libraries.
constexpr double kUsualPart = 0.75;
constexpr int64_t kParts = 16;  // in which free memory is counted

}  // namespace

FoundBatch search_largest_batch(const std::function<int64_t(int64_t batch)>& bytes_of, int64_t budget, int64_t most) {
  FoundBatch found;
  const auto fits = [&](int64_t batch) {
    const int64_t bytes = bytes_of(batch);
    ++found.asked;
    if (bytes > budget) {
      found.bytes_beyond = bytes;  // of the smallest one so far
      return false;
    }
    found.batch = batch;
    found.bytes = bytes;
    return true;
  };
  if (!fits(1)) {
    throw core::Error(core::ErrorCode::kNoSpace,
                      {.problem = "there is no memory for a batch of one image",
                       .expected = fmt::format("at most {} bytes", budget),
                       .actual = fmt::format("{} bytes", *found.bytes_beyond),
                       .remedy = "allow more memory, or use a smaller model or image, 16-bit floats or --recompute"});
  }
  int64_t beyond = 0;  // a batch that does not fit; 0: none is known
  while (beyond == 0 && found.batch < most) {
    const int64_t next = std::min(2 * found.batch, most);
    if (!fits(next)) beyond = next;
  }
  while (beyond - found.batch > 1) {
    const int64_t middle = found.batch + (beyond - found.batch) / 2;
    if (!fits(middle)) beyond = middle;
  }
  return found;
}

MeasuredBatch search_measured_batch(const std::function<bool(int64_t batch)>& fits, int64_t first, int64_t most,
                                    double tolerance) {
  MeasuredBatch found;
  int64_t next = std::clamp<int64_t>(first, 1, most);
  while (found.batch == 0) {
    if (fits(next)) {
      found.batch = next;
    } else if (next == 1) {
      throw core::Error(core::ErrorCode::kNoSpace,
                        {.problem = "there is no memory for a batch of one image",
                         .remedy = "allow more memory, or use a smaller model or image, 16-bit floats or --recompute"});
    } else {
      found.beyond = next;
      next = next / 2;
    }
  }
  while (found.beyond == 0 && found.batch < most) {
    next = std::min(2 * found.batch, most);
    (fits(next) ? found.batch : found.beyond) = next;
  }
  const auto close = [&] {
    return found.beyond == 0 || found.beyond - found.batch <= 1 ||
           static_cast<double>(found.beyond - found.batch) <= tolerance * static_cast<double>(found.batch);
  };
  while (!close()) {
    next = found.batch + (found.beyond - found.batch) / 2;
    (fits(next) ? found.batch : found.beyond) = next;
  }
  return found;
}

MemoryBudget usual_memory_budget(int64_t machine, std::optional<int64_t> allowed, int64_t free) {
  if (machine <= 0) {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "the system does not say how much memory there is",
                                                      .where = "MemTotal in /proc/meminfo",
                                                      .remedy = "pass --batch_size_memory_mib"});
  }
  const int64_t all = std::min(machine, allowed.value_or(machine));
  const auto usual = static_cast<int64_t>(kUsualPart * static_cast<double>(all));
  if (free <= 0 || free >= usual) return {.bytes = usual};
  return {.bytes = free / std::max<int64_t>(1, all / kParts) * (all / kParts), .free_only = true};
}

}  // namespace trainyard::train
