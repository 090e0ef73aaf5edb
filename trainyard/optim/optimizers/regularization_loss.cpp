#include "trainyard/optim/optimizers/regularization_loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/step/segment_parts.h"

namespace trainyard::optim {
namespace {

// Returns the sum of measure(w). In eight lanes, which the compiler may keep in vector registers: the order of the
// additions is part of the result.
template <typename T, typename Measure>
double sum_of(const T* values, int64_t count, Measure measure) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[static_cast<size_t>(lane)] += measure(static_cast<double>(values[i + lane]));
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += measure(static_cast<double>(values[i]));
  return sum;
}

template <typename Measure>
double sum_of(const at::Tensor& values, const SegmentPart& part, Measure measure) {
  if (values.scalar_type() == at::kDouble) {
    return sum_of(values.const_data_ptr<double>() + part.begin, part.count, measure);
  }
  return sum_of(values.const_data_ptr<float>() + part.begin, part.count, measure);
}

constexpr auto kSquare = [](double value) { return value * value; };
constexpr auto kAbsolute = [](double value) { return std::abs(value); };

// What a term's coefficient is times: the sums of |w| or of w^2.
double factor_of(RegularizationKind kind) {
  return kind == RegularizationKind::kL2Half ? 0.5 : 1.0;
}

}  // namespace

RegularizationLoss::RegularizationLoss(const Optimizer& optimizer, const nn::ParameterSet& values)
    : parameters_(&values),
      parts_(
          std::make_shared<SegmentPartTable>(segment_part_table(optimizer.own_segments(), values.values().device()))),
      device_(optimizer.device()) {
  const std::vector<nn::Segment>& segments = parameters_->segments();
  for (const Optimizer::Regularizer& regularizer : optimizer.regularizers()) {
    Term& term = terms_.emplace_back(Term{.name = regularizer.name, .kind = regularizer.kind, .coefficients = {}});
    if (device_ != nullptr) {
      term.coefficients = {optimizer.options().weight_decay};
      continue;
    }
    for (int p = 0; p < parts_->count; ++p) {
      const int64_t begin = parts_->data()[p].begin;
      const auto behind = std::partition_point(segments.begin(), segments.end(),
                                               [begin](const nn::Segment& segment) { return segment.offset <= begin; });
      term.coefficients.push_back(regularizer.coefficients[static_cast<size_t>(behind - segments.begin()) - 1]);
    }
  }
}

std::vector<double> RegularizationLoss::on_host() const {
  const auto applies = [this](bool absolute, size_t part) {
    return std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
      return (term.kind == RegularizationKind::kL1) == absolute && term.coefficients[part] != 0;
    });
  };
  const at::Tensor values = parameters_->values();
  const auto count = static_cast<size_t>(parts_->count);
  std::vector<double> squares(count), absolutes(count);
  at::parallel_for(0, parts_->count, 16, [&](int64_t first, int64_t last) {
    for (auto p = static_cast<size_t>(first); p < static_cast<size_t>(last); ++p) {
      const SegmentPart& part = parts_->data()[p];
      if (applies(false, p)) squares[p] = sum_of(values, part, kSquare);
      if (applies(true, p)) absolutes[p] = sum_of(values, part, kAbsolute);
    }
  });
  std::vector<double> losses;
  for (const Term& term : terms_) {
    const std::vector<double>& sums = term.kind == RegularizationKind::kL1 ? absolutes : squares;
    double loss = 0;
    for (size_t p = 0; p < count; ++p) loss += term.coefficients[p] * sums[p] * factor_of(term.kind);
    losses.push_back(loss);
  }
  return losses;
}

std::vector<std::pair<std::string, at::Tensor>> RegularizationLoss::by_term() const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  if (device_ != nullptr) {
    for (const Term& term : terms_) {
      all.emplace_back(term.name, device_->sum_of_decayed_squares(parameters_->values(), *parts_)
                                      .mul_(term.coefficients[0] * factor_of(term.kind)));
    }
    return all;
  }
  const std::vector<double> losses = on_host();
  for (size_t t = 0; t < terms_.size(); ++t) {
    all.emplace_back(terms_[t].name, at::scalar_tensor(losses[t], at::kDouble));
  }
  return all;
}

at::Tensor RegularizationLoss::operator()() const {
  const auto all = by_term();
  if (all.empty()) return at::zeros({}, parameters_->values().options().dtype(at::kDouble));
  at::Tensor total = all[0].second;
  for (size_t t = 1; t < all.size(); ++t) total.add_(all[t].second);
  return total;
}

}  // namespace trainyard::optim
