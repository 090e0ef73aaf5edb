#include "trainyard/nn/execution/multibox_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/ops/zeros_like.h>

namespace trainyard::nn {
namespace {

constexpr int64_t kOffsets = 4;  // numbers in front of the scores

// Returns e^x for x <= 0 within 2e-7 of it, in steps that compilers turn into vectors: 2^n e^r, where n is the nearest
// whole number to x / ln 2.
inline float exponential(float x) {
  constexpr float kLowest = -87.0F;        // below it the result would not be a normal number
  constexpr float kToWhole = 12582912.0F;  // 1.5 * 2^23: a sum with it is rounded to a whole number
  constexpr float kLnHigh = 0.693359375F, kLnLow = -2.12194440e-4F;
  x = x < kLowest ? kLowest : x;
  const float shifted = x * 1.44269504088896341F + kToWhole;
  const float n = shifted - kToWhole;
  const float r = (x - n * kLnHigh) - n * kLnLow;
  // Taylor's series: |r| <= ln 2 / 2, so that the first term left out is below 6e-9.
  float series = r * (1.0F / 5040) + 1.0F / 720;
  series = series * r + 1.0F / 120;
  series = series * r + 1.0F / 24;
  series = series * r + 1.0F / 6;
  series = series * r + 0.5F;
  series = series * r + 1;
  series = series * r + 1;
  return series * std::bit_cast<float>((std::bit_cast<int32_t>(shifted) + 127) << 23);
}
inline double exponential(double x) {
  return std::exp(x);
}

// The softmax of a row is exp(z - largest) / sum.
template <typename Number>
struct Softmax {
  Number largest, sum;

  explicit Softmax(std::span<const Number> row) : largest(row[0]), sum(0) {
    const Number* const z = row.data();
    const auto count = static_cast<int64_t>(row.size());
    Number most = z[0], total = 0;
#pragma omp simd reduction(max : most)
    for (int64_t c = 0; c < count; ++c) most = z[c] > most ? z[c] : most;
#pragma omp simd reduction(+ : total)
    for (int64_t c = 0; c < count; ++c) total += exponential(z[c] - most);
    largest = most;
    sum = total;
  }
  // As TensorFlow computes it: never below 0.
  Number cross_entropy(Number logit) const {
    return std::log(sum) - (logit - largest);
  }
};

// Returns the scores of a row; `space` holds them where they are of another type.
template <typename Number, typename T>
std::span<const Number> scores_of(const T* row, std::vector<Number>& space) {
  if constexpr (std::is_same_v<Number, T>) {
    return {row + kOffsets, space.size()};
  } else {
    for (size_t c = 0; c < space.size(); ++c) space[c] = static_cast<Number>(row[kOffsets + static_cast<int64_t>(c)]);
    return space;
  }
}

// Counts the hardest boxes of one image once more in `weights`. `losses` are the cross entropies, 0 for positive boxes.
template <typename Number>
void count_hardest(const std::vector<Number>& losses, int64_t count, uint8_t* weights) {
  std::vector<Number> sorted = losses;
  const auto last = sorted.begin() + (count - 1);
  std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
  const Number least = *last;
  int64_t ties = count - std::count_if(losses.begin(), losses.end(), [&](Number loss) { return loss > least; });
  for (size_t d = 0; d < losses.size(); ++d) {
    if (losses[d] > least || (losses[d] == least && ties-- > 0)) ++weights[d];
  }
}

template <typename Number, typename T>
Number smooth_l1(const T* offset, const Number* target) {
  Number sum = 0;
  for (int64_t k = 0; k < kOffsets; ++k) {
    const Number distance = std::abs(static_cast<Number>(offset[k]) - target[k]);
    sum += distance <= 1 ? distance * distance / 2 : distance - Number(0.5);
  }
  return sum;
}

template <typename Number, typename T>
class Loops {
 public:
  explicit Loops(const MultiboxRows& rows)
      : images_(rows.output.size(0)),
        boxes_(rows.output.size(1)),
        columns_(rows.output.size(2)),
        output_(rows.output.const_data_ptr<T>()),
        targets_(rows.target_offsets.const_data_ptr<Number>()),
        classes_(rows.classes.const_data_ptr<int64_t>()),
        matched_(rows.num_matched.const_data_ptr<int64_t>()) {}

  MultiboxSums forward(uint8_t* weights) const {
    const std::vector<Number> entropies = cross_entropies();
    std::vector<MultiboxSums> sums(static_cast<size_t>(images_));
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < images_; ++n) {
      if (matched_[n] > 0) sums[static_cast<size_t>(n)] = image(n, entropies.data() + n * boxes_, weights + n * boxes_);
    }
    MultiboxSums total;
    for (const MultiboxSums& sum : sums) {
      total.class_loss += sum.class_loss;
      total.box_loss += sum.box_loss;
    }
    return total;
  }

  // `gradient` holds zeros.
  void backward(const uint8_t* weights, double factor, T* gradient) const {
#pragma omp parallel
    {
      std::vector<Number> space = scores();
#pragma omp for schedule(static)
      for (int64_t i = 0; i < images_ * boxes_; ++i) {
        if (weights[i] > 0) row_backward(i, weights[i], factor * share(i / boxes_), space, gradient + i * columns_);
      }
    }
  }

 private:
  std::vector<Number> scores() const {
    return std::vector<Number>(static_cast<size_t>(columns_ - kOffsets));
  }
  // The part of one image's sums in the mean.
  double share(int64_t n) const {
    return 1 / (static_cast<double>(matched_[n]) * static_cast<double>(images_));
  }

  std::vector<Number> cross_entropies() const {
    std::vector<Number> entropies(static_cast<size_t>(images_ * boxes_));
#pragma omp parallel
    {
      std::vector<Number> space = scores();
#pragma omp for schedule(static)
      for (int64_t i = 0; i < images_ * boxes_; ++i) {
        const std::span<const Number> z = scores_of<Number>(output_ + i * columns_, space);
        const Number own = z[static_cast<size_t>(classes_[i])];
        entropies[static_cast<size_t>(i)] = Softmax<Number>(z).cross_entropy(own);
      }
    }
    return entropies;
  }

  MultiboxSums image(int64_t n, const Number* entropies, uint8_t* weights) const {
    std::vector<Number> losses(static_cast<size_t>(boxes_));
    MultiboxSums sum;
    for (int64_t d = 0; d < boxes_; ++d) {
      const int64_t i = n * boxes_ + d;
      if (classes_[i] == 0) {
        // What is not a number is as hard as can be: it must not get lost.
        const Number loss = entropies[d];
        losses[static_cast<size_t>(d)] = std::isnan(loss) ? std::numeric_limits<Number>::infinity() : loss;
        continue;
      }
      ++weights[d];
      sum.box_loss += static_cast<double>(smooth_l1(output_ + i * columns_, targets_ + i * kOffsets));
    }
    const int64_t hardest = matched_[n] >= boxes_ ? boxes_ : std::min(3 * matched_[n], boxes_);
    if (hardest > 0) count_hardest(losses, hardest, weights);
    for (int64_t d = 0; d < boxes_; ++d) {
      if (weights[d] > 0) sum.class_loss += weights[d] * static_cast<double>(entropies[d]);
    }
    return {.class_loss = sum.class_loss * share(n), .box_loss = sum.box_loss * share(n)};
  }

  void row_backward(int64_t i, uint8_t weight, double factor, std::vector<Number>& space, T* gradient) const {
    const T* const row = output_ + i * columns_;
    const auto one = static_cast<Number>(factor);
    if (classes_[i] > 0) {
      for (int64_t k = 0; k < kOffsets; ++k) {
        const Number distance = static_cast<Number>(row[k]) - targets_[i * kOffsets + k];
        // Not std::clamp, which is undefined for what is not a number.
        gradient[k] = static_cast<T>(one * (distance > 1 ? 1 : distance < -1 ? -1 : distance));
      }
    }
    const std::span<const Number> z = scores_of<Number>(row, space);
    const Softmax<Number> softmax(z);
    const Number whole = one * weight;
    for (int64_t c = 0; c < columns_ - kOffsets; ++c) {
      const Number target = c == classes_[i] ? 1 : 0;
      const Number part = exponential(z[static_cast<size_t>(c)] - softmax.largest) / softmax.sum;
      gradient[kOffsets + c] = static_cast<T>(whole * (part - target));
    }
  }

  int64_t images_, boxes_, columns_;
  const T* output_;
  const Number* targets_;
  const int64_t *classes_, *matched_;
};

// Calls use(loops) for the types of the batch.
template <typename Use>
void with_loops(const MultiboxRows& rows, const Use& use) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rows.output.scalar_type(), "multibox_loss", [&] {
    using Number = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    use(Loops<Number, scalar_t>(rows), scalar_t{});
  });
}

}  // namespace

MultiboxSums multibox_forward(const MultiboxRows& rows, const at::Tensor& weights) {
  weights.zero_();
  MultiboxSums sums;
  with_loops(rows, [&](const auto& loops, auto) { sums = loops.forward(weights.data_ptr<uint8_t>()); });
  return sums;
}

at::Tensor multibox_backward(const MultiboxRows& rows, const at::Tensor& weights, double factor) {
  at::Tensor gradient = at::zeros_like(rows.output);
  with_loops(rows, [&](const auto& loops, auto number) {
    loops.backward(weights.const_data_ptr<uint8_t>(), factor, gradient.data_ptr<decltype(number)>());
  });
  return gradient;
}

}  // namespace trainyard::nn
