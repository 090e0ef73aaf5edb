#include "trainyard/parallel/variable_update/power_sgd.h"

#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "trainyard/core/random/random.h"
#include "trainyard/optim/step/finite.h"
#include "trainyard/parallel/variable_update/low_rank.h"

namespace trainyard::parallel {
namespace {

constexpr int64_t kElementsPerBlock = 32768;
constexpr int64_t kPartColumns = 256;

int64_t rank_of(int64_t rows, int64_t columns, const GradientCompression& options) {
  return std::min({rows, columns, options.matrix_approximation_rank});
}

std::vector<CompressedGradient> gradients_of_low_rank(const nn::ParameterSet& set, const GradientCompression& options) {
  std::vector<CompressedGradient> chosen;
  int64_t errors = 0;
  for (const nn::Segment& segment : set.segments()) {
    if (segment.spec.shape.size() < 2 || segment.count == 0) continue;
    const int64_t rows = segment.spec.shape[0], columns = segment.count / rows;
    const auto narrow = static_cast<double>((rows + columns) * rank_of(rows, columns, options));
    if (!(narrow * options.min_compression_rate < static_cast<double>(segment.count))) continue;
    chosen.push_back({segment.id, segment.offset, errors, rows, columns});
    errors += segment.count;
  }
  return chosen;
}

}  // namespace

PowerSgd::PowerSgd(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                   const GradientCompression& options)
    : GradientCompressor(set, communicator, op, options, gradients_of_low_rank(set, options)) {
  int64_t p = 0, q = 0;
  for (size_t i = 0; i < compressed().size(); ++i) {
    const CompressedGradient& gradient = compressed()[i];
    const int64_t rank = rank_of(gradient.rows, gradient.columns, options);
    factors_.push_back({.rank = rank, .p_offset = p, .q_offset = q});
    p += rank * gradient.rows;
    q += rank * gradient.columns;
    const int64_t rows = std::max<int64_t>(1, kElementsPerBlock / gradient.columns);
    for (int64_t begin = 0; begin < gradient.rows; begin += rows) {
      rows_.push_back({i, begin, std::min(gradient.rows, begin + rows)});
    }
    for (int64_t begin = 0; begin < gradient.columns; begin += kPartColumns) {
      columns_.push_back({i, begin, std::min(gradient.columns, begin + kPartColumns)});
    }
  }
  p_ = at::empty({p}, set.dtype());
  q_ = at::zeros({q}, set.dtype());
  next_q_ = at::empty({q}, set.dtype());
}

bool PowerSgd::exchange(double factor) {
  return set().dtype() == at::kDouble ? exchange_as<double>(factor) : exchange_as<float>(factor);
}

// A column that has vanished, as all have before the first step, is drawn from a stream that all ranks have.
template <typename T>
void PowerSgd::make_start() {
  next_q_.copy_(q_);
  T* const q = next_q_.mutable_data_ptr<T>();
  at::parallel_for(0, std::ssize(factors_), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      const int64_t length = compressed()[i].columns;
      const std::string& name = set().segment(compressed()[i].id).spec.name;
      orthonormalize<T>(q + factors_[i].q_offset, length, factors_[i].rank, [&](int64_t column, T* values) {
        core::RandomStream random(0, "powersgd/" + name,
                                  {static_cast<uint64_t>(steps()), static_cast<uint64_t>(column)});
        for (int64_t j = 0; j < length; ++j) values[j] = random.normal();
      });
    }
  });
}

template <typename T>
bool PowerSgd::exchange_as(double factor) {
  const std::unique_ptr<core::PendingCollective> plain = start_plain();
  const std::vector<CompressedGradient>& all = compressed();
  T* const gradients = set().gradients().mutable_data_ptr<T>();
  T* const errors = mutable_error().mutable_data_ptr<T>();
  make_start<T>();
  T* const p = p_.mutable_data_ptr<T>();
  T* const q = next_q_.mutable_data_ptr<T>();
  at::parallel_for(0, std::ssize(rows_), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      const Part& part = rows_[i];
      const CompressedGradient& own = all[part.matrix];
      const Factors& narrow = factors_[part.matrix];
      add_and_multiply<T>(gradients + own.offset, errors + own.error_offset, static_cast<T>(factor), own.rows,
                          own.columns, q + narrow.q_offset, narrow.rank, p + narrow.p_offset, part.begin, part.end);
    }
  });
  std::unique_ptr<core::PendingCollective> sum_of_p;
  if (!all.empty()) sum_of_p = communicator().start_all_reduce(p_, core::ReduceOp::kSum);
  if (plain) plain->wait();
  if (sum_of_p) sum_of_p->wait();
  if (!plain_is_finite() || (!all.empty() && !optim::all_finite(p_))) return false;
  if (all.empty()) {
    take_plain();
    return true;
  }

  at::parallel_for(0, std::ssize(factors_), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      orthonormalize<T>(p + factors_[i].p_offset, all[i].rows, factors_[i].rank);
    }
  });
  at::parallel_for(0, std::ssize(columns_), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      const Part& part = columns_[i];
      const CompressedGradient& own = all[part.matrix];
      const Factors& narrow = factors_[part.matrix];
      multiply_transposed<T>(gradients + own.offset, own.rows, own.columns, p + narrow.p_offset, narrow.rank,
                             q + narrow.q_offset, part.begin, part.end);
    }
  });
  communicator().all_reduce(next_q_, op());
  if (!optim::all_finite(next_q_)) return false;

  take_plain();
  at::parallel_for(0, std::ssize(rows_), 1, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      const Part& part = rows_[i];
      const CompressedGradient& own = all[part.matrix];
      const Factors& narrow = factors_[part.matrix];
      replace_by_product<T>(gradients + own.offset, errors + own.error_offset, static_cast<T>(share_of_rank()),
                            own.rows, own.columns, p + narrow.p_offset, q + narrow.q_offset, narrow.rank, part.begin,
                            part.end);
    }
  });
  std::swap(q_, next_q_);
  return true;
}

int64_t PowerSgd::compressed_bytes() const {
  return static_cast<int64_t>(p_.nbytes() + q_.nbytes());
}

int64_t PowerSgd::own_memory_bytes() const {
  return static_cast<int64_t>(p_.nbytes() + q_.nbytes() + next_q_.nbytes());
}

void PowerSgd::save_own(core::StateWriter& writer) const {
  for (size_t i = 0; i < factors_.size(); ++i) {
    const int64_t rank = factors_[i].rank, columns = compressed()[i].columns;
    writer.tensor("q/" + set().segment(compressed()[i].id).spec.name,
                  q_.narrow(0, factors_[i].q_offset, rank * columns).view({rank, columns}).t().contiguous());
  }
}

bool PowerSgd::load_own(const core::StateReader& reader) {
  q_.zero_();
  bool complete = true;
  for (size_t i = 0; i < factors_.size(); ++i) {
    const int64_t rank = factors_[i].rank, columns = compressed()[i].columns;
    const std::string name = "q/" + set().segment(compressed()[i].id).spec.name;
    const at::Tensor saved = reader.has(name) ? reader.tensor(name) : at::Tensor();
    // Another rank's first columns are as good a start: the others are drawn again.
    if (!saved.defined() || saved.dim() != 2 || saved.size(0) != columns) {
      complete = false;
      continue;
    }
    const int64_t kept = std::min(rank, saved.size(1));
    complete = complete && saved.size(1) == rank;
    q_.narrow(0, factors_[i].q_offset, kept * columns).view({kept, columns}).copy_(saved.narrow(1, 0, kept).t());
  }
  return complete;
}

}  // namespace trainyard::parallel
