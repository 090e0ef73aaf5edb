#include "trainyard/parallel/variable_update/top_k_gradients.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {
namespace {

int64_t selected_of(int64_t count, const GradientCompression& options) {
  const auto wanted = static_cast<int64_t>(std::ceil(static_cast<double>(count) * options.top_k_share));
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(count, 1));
}

std::vector<CompressedGradient> gradients_of_top_k(const nn::ParameterSet& set, const GradientCompression& options) {
  std::vector<CompressedGradient> chosen;
  int64_t errors = 0;
  for (const nn::Segment& segment : set.segments()) {
    if (segment.spec.shape.size() < 2 || segment.count == 0) continue;
    if (2 * selected_of(segment.count, options) >= segment.count) continue;  // an index is as wide as a value
    chosen.push_back(
        {segment.id, segment.offset, errors, segment.spec.shape[0], segment.count / segment.spec.shape[0]});
    errors += segment.count;
  }
  return chosen;
}

// The bits of the absolute value, which are ordered as it is, with NaN above infinity.
template <typename T>
auto magnitude(T value) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return static_cast<Bits>(std::bit_cast<Bits>(value) & static_cast<Bits>(~Bits{0} >> 1));
}

// The elements of one gradient that the ranks have sent.
template <typename T, typename Index>
struct SentElements {
  const T* values;
  const Index* indices;
};

// Adds up the elements of all ranks, in the order of ranks, into `sums`. `at` has a position for each rank.
template <typename T, typename Index>
void add_in_rank_order(const std::vector<SentElements<T, Index>>& ranks, int64_t count, bool mean,
                       std::vector<int64_t>& at, T* sums) {
  at.assign(ranks.size(), 0);
  while (true) {
    Index next = std::numeric_limits<Index>::max();
    bool left = false;
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (at[r] == count) continue;
      next = std::min(next, ranks[r].indices[at[r]]);
      left = true;
    }
    if (!left) return;
    T sum = 0;
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (at[r] < count && ranks[r].indices[at[r]] == next) sum += ranks[r].values[at[r]++];
    }
    sums[next] = mean ? sum / static_cast<T>(ranks.size()) : sum;
  }
}

}  // namespace

// Finds the smallest magnitude that is selected, 16 bits at a time from the highest.
template <typename T, typename Index>
void select_largest(const T* values, int64_t size, int64_t count, Index* indices, T* selected) {
  using Bits = decltype(magnitude(T()));
  constexpr int kDigit = 16;
  std::vector<int64_t> histogram;
  Bits threshold = 0, known = 0;  // the bits of the threshold that are known
  int64_t wanted = count;         // of the elements whose known bits are those of the threshold
  for (int shift = 8 * static_cast<int>(sizeof(T)) - kDigit; shift >= 0; shift -= kDigit) {
    histogram.assign(size_t{1} << kDigit, 0);
    for (int64_t i = 0; i < size; ++i) {
      const Bits bits = magnitude(values[i]);
      if ((bits & known) == threshold) ++histogram[static_cast<size_t>((bits >> shift) & 0xffff)];
    }
    size_t digit = histogram.size() - 1;
    while (histogram[digit] < wanted) wanted -= histogram[digit--];
    threshold |= static_cast<Bits>(digit) << shift;
    known |= static_cast<Bits>(0xffff) << shift;
  }
  int64_t taken = 0;
  for (int64_t i = 0; i < size; ++i) {
    const Bits bits = magnitude(values[i]);
    if (bits < threshold || (bits == threshold && wanted == 0)) continue;
    if (bits == threshold) --wanted;
    indices[taken] = static_cast<Index>(i);
    selected[taken++] = values[i];
  }
}

template void select_largest<float, int32_t>(const float*, int64_t, int64_t, int32_t*, float*);
template void select_largest<double, int64_t>(const double*, int64_t, int64_t, int64_t*, double*);

TopKGradients::TopKGradients(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                             const GradientCompression& options)
    : GradientCompressor(set, communicator, op, options, gradients_of_top_k(set, options)) {
  for (const CompressedGradient& gradient : compressed()) {
    if (set.dtype() == at::kFloat && gradient.count() > std::numeric_limits<int32_t>::max()) {
      throw core::Error(core::ErrorCode::kUnsupported, {.problem = "a gradient is too large for indices of 32 bits",
                                                        .where = set.segment(gradient.id).spec.name,
                                                        .actual = fmt::format("{} elements", gradient.count()),
                                                        .remedy = "use --gradient_compression=powersgd"});
    }
    counts_.push_back(selected_of(gradient.count(), options));
    begins_.push_back(selected_);
    selected_ += counts_.back();
  }
  message_ = at::empty({2 * selected_}, set.dtype() == at::kDouble ? at::kLong : at::kInt);
}

bool TopKGradients::exchange(double factor) {
  return set().dtype() == at::kDouble ? exchange_largest<double, int64_t>(factor)
                                      : exchange_largest<float, int32_t>(factor);
}

template <typename T, typename Index>
bool TopKGradients::exchange_largest(double factor) {
  const std::unique_ptr<core::PendingCollective> plain = start_plain();
  const std::vector<CompressedGradient>& all = compressed();
  T* const gradients = set().gradients().mutable_data_ptr<T>();
  T* const errors = mutable_error().mutable_data_ptr<T>();
  // The bits of the values travel as integers, which no exchange rounds.
  auto* const own_indices = message_.mutable_data_ptr<Index>() + selected_;
  at::Tensor own_values = at::empty({selected_}, set().dtype());
  T* const values = own_values.mutable_data_ptr<T>();
  at::parallel_for(0, std::ssize(all), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      T* const own = gradients + all[i].offset;
      const T* const kept = errors + all[i].error_offset;
      for (int64_t j = 0; j < all[i].count(); ++j) own[j] += static_cast<T>(factor) * kept[j];
      select_largest<T, Index>(own, all[i].count(), counts_[i], own_indices + begins_[i], values + begins_[i]);
    }
  });
  std::memcpy(message_.mutable_data_ptr<Index>(), values, static_cast<size_t>(selected_) * sizeof(T));
  if (plain) plain->wait();
  const std::vector<at::Tensor> messages =
      all.empty() ? std::vector<at::Tensor>() : communicator().all_gather(message_);
  std::vector<std::vector<T>> sent;  // by rank
  bool finite = plain_is_finite();
  for (const at::Tensor& message : messages) {
    std::vector<T>& of_rank = sent.emplace_back(static_cast<size_t>(selected_));
    std::memcpy(of_rank.data(), message.const_data_ptr<Index>(), of_rank.size() * sizeof(T));
    finite = finite && std::all_of(of_rank.begin(), of_rank.end(), [](T value) { return std::isfinite(value); });
  }
  if (!finite) return false;

  take_plain();
  at::parallel_for(0, std::ssize(all), 1, [&](int64_t first, int64_t last) {
    std::vector<int64_t> positions;
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      T* const sums = gradients + all[i].offset;
      T* const kept = errors + all[i].error_offset;
      std::copy_n(sums, all[i].count(), kept);
      for (int64_t j = 0; j < counts_[i]; ++j) kept[own_indices[begins_[i] + j]] = 0;
      std::fill_n(sums, all[i].count(), T(0));
      std::vector<SentElements<T, Index>> ranks;
      for (size_t r = 0; r < messages.size(); ++r) {
        ranks.push_back(
            {sent[r].data() + begins_[i], messages[r].template const_data_ptr<Index>() + selected_ + begins_[i]});
      }
      add_in_rank_order(ranks, counts_[i], op() == core::ReduceOp::kMean, positions, sums);
    }
  });
  return true;
}

int64_t TopKGradients::compressed_bytes() const {
  return static_cast<int64_t>(message_.nbytes());
}

int64_t TopKGradients::own_memory_bytes() const {
  return static_cast<int64_t>(message_.nbytes());
}

}  // namespace trainyard::parallel
