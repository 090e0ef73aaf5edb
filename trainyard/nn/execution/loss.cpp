#include "trainyard/nn/execution/loss.h"

#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/device_loss.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {
namespace {

void check(const at::Tensor& logits, const at::Tensor& labels) {
  const bool fits = logits.dim() == 2 && logits.is_floating_point() && labels.dim() == 1 &&
                    labels.scalar_type() == at::kLong && labels.size(0) == logits.size(0);
  if (!fits) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "logits and labels do not fit",
         .expected = "[N, classes] of a float type and [N] of int64",
         .actual = fmt::format("{} of {} and {} of {}", to_string(logits.sizes().vec()), toString(logits.scalar_type()),
                               to_string(labels.sizes().vec()), toString(labels.scalar_type()))});
  }
  if (labels.is_cpu()) check_labels(labels, logits.size(1));
}

at::Tensor at_least_float(const at::Tensor& logits) {
  return at::isReducedFloatingType(logits.scalar_type()) ? logits.to(at::kFloat) : logits;
}

void check_shares(const at::Tensor& shares, const at::Tensor& labels) {
  const bool fits = shares.is_floating_point() && shares.sizes() == labels.sizes();
  const bool in_range = fits && (!shares.is_cpu() || shares.ge(0).logical_and(shares.le(1)).all().item<bool>());
  if (in_range) return;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = "shares of labels cannot be used",
       .expected = fmt::format("{} of a float type, each 0 to 1", to_string(labels.sizes().vec())),
       .actual = fits ? "a share out of range"
                      : fmt::format("{} of {}", to_string(shares.sizes().vec()), toString(shares.scalar_type()))});
}

// Returns the weights on the device and of the dtype of `scores` [N, classes].
at::Tensor weights_for(const at::Tensor& scores, const at::Tensor& class_weights) {
  if (class_weights.dim() != 1 || class_weights.size(0) != scores.size(1) || !class_weights.is_floating_point()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "weights of classes do not fit the logits",
                       .expected = fmt::format("[{}] of a float type", scores.size(1)),
                       .actual = fmt::format("{} of {}", to_string(class_weights.sizes().vec()),
                                             toString(class_weights.scalar_type()))});
  }
  return class_weights.to(scores.device(), scores.scalar_type());
}

void check_smoothing(double label_smoothing) {
  if (label_smoothing >= 0 && label_smoothing < 1) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "label_smoothing is out of range",
                                                        .expected = "[0, 1)",
                                                        .actual = fmt::format("{}", label_smoothing)});
}

// Returns the targets of single labels, [N, classes] like `scores`.
at::Tensor smoothed_targets(const at::Tensor& scores, const at::Tensor& labels, double smoothing) {
  const double other = smoothing / static_cast<double>(scores.size(1));
  return at::full(scores.sizes(), other, scores.options()).scatter_(1, labels.unsqueeze(1), 1 - smoothing + other);
}

at::Tensor binary_loss(const at::Tensor& scores, const at::Tensor& soft_targets,
                       const BinaryCrossEntropyOptions& options) {
  const at::Tensor targets =
      options.target_threshold ? soft_targets.gt(*options.target_threshold).to(scores.scalar_type()) : soft_targets;
  std::optional<at::Tensor> weights;
  if (options.class_weights.defined()) weights = weights_for(scores, options.class_weights);
  constexpr int64_t kMean = 1;  // at::Reduction::Mean
  const at::Tensor mean = at::binary_cross_entropy_with_logits(scores, targets, weights, {}, kMean);
  return options.sum_classes ? mean * static_cast<double>(scores.size(1)) : mean;
}

// Null where ATen computes the loss of these logits.
const DeviceCrossEntropy* device_cross_entropy(const at::Tensor& logits) {
  if (logits.is_cpu() || logits.scalar_type() == at::kDouble) return nullptr;
  const std::string kind = c10::DeviceTypeName(logits.device().type(), /*lower_case=*/true);
  return device_cross_entropies().has(kind) ? &device_cross_entropies().get(kind) : nullptr;
}

}  // namespace

void CrossEntropyOptions::validate() const {
  check_smoothing(label_smoothing);
}

void BinaryCrossEntropyOptions::validate() const {
  check_smoothing(label_smoothing);
  if (!target_threshold || (*target_threshold >= 0 && *target_threshold < 1)) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "target_threshold is out of range",
                                                        .expected = "[0, 1)",
                                                        .actual = fmt::format("{}", *target_threshold)});
}

core::Registry<DeviceCrossEntropy>& device_cross_entropies() {
  static auto* registry = new core::Registry<DeviceCrossEntropy>("loss on a device");
  return *registry;
}

void check_labels(const at::Tensor& labels, int64_t classes) {
  const at::Tensor plain = labels.contiguous();
  const int64_t* const label = plain.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < plain.size(0); ++i) {
    if (label[i] >= 0 && label[i] < classes) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a label is not one of the model's classes",
                       .where = fmt::format("sample {} of the batch", i),
                       .expected = fmt::format("0 to {}", classes - 1),
                       .actual = fmt::format("{}", label[i]),
                       .remedy = "the data set counts its classes differently: check --num_classes"});
  }
}

at::Tensor softmax_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                 const CrossEntropyOptions& options) {
  check(logits, labels);
  options.validate();
  const DeviceCrossEntropy* const own = device_cross_entropy(logits);
  if (own != nullptr && !options.class_weights.defined()) {
    return (*own)(at_least_float(logits), labels, options.label_smoothing);
  }
  constexpr int64_t kMean = 1;  // at::Reduction::Mean
  constexpr int64_t kIgnoreNone = -100;
  const at::Tensor scores = at_least_float(logits);
  std::optional<at::Tensor> weights;
  if (options.class_weights.defined()) weights = weights_for(scores, options.class_weights);
  return at::cross_entropy_loss(scores, labels, weights, kMean, kIgnoreNone, options.label_smoothing);
}

at::Tensor mixed_softmax_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                       const at::Tensor& other_labels, const at::Tensor& shares,
                                       const CrossEntropyOptions& options) {
  check(logits, labels);
  check(logits, other_labels);
  check_shares(shares, labels);
  options.validate();
  at::Tensor scores = at::log_softmax(at_least_float(logits), 1);
  if (options.class_weights.defined()) scores = scores * weights_for(scores, options.class_weights);
  const at::Tensor own = shares.to(scores.scalar_type());
  const at::Tensor weights = at::stack({own, 1 - own}, 1);  // [N, 2]
  // One gather, so that the backward writes one tensor of the logits' size, as for single labels.
  at::Tensor likelihood = scores.gather(1, at::stack({labels, other_labels}, 1)).mul(weights).sum(1);  // [N]
  if (const double smoothing = options.label_smoothing; smoothing > 0) {
    likelihood = likelihood.mul(1 - smoothing).add(scores.mean(1), smoothing);
  }
  return likelihood.mean().neg();
}

at::Tensor sigmoid_cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  const bool fits = logits.dim() == 2 && logits.is_floating_point() && targets.is_floating_point() &&
                    targets.sizes() == logits.sizes();
  if (!fits) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "logits and targets do not fit",
         .expected = "two of [N, classes] of a float type",
         .actual = fmt::format("{} of {} and {} of {}", to_string(logits.sizes().vec()), toString(logits.scalar_type()),
                               to_string(targets.sizes().vec()), toString(targets.scalar_type()))});
  }
  const at::Tensor scores = at_least_float(logits);
  constexpr int64_t kMean = 1;  // at::Reduction::Mean
  return at::binary_cross_entropy_with_logits(scores, targets.to(scores.scalar_type()), {}, {}, kMean);
}

at::Tensor binary_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                const BinaryCrossEntropyOptions& options) {
  check(logits, labels);
  options.validate();
  const at::Tensor scores = at_least_float(logits);
  return binary_loss(scores, smoothed_targets(scores, labels, options.label_smoothing), options);
}

at::Tensor mixed_binary_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                      const at::Tensor& other_labels, const at::Tensor& shares,
                                      const BinaryCrossEntropyOptions& options) {
  check(logits, labels);
  check(logits, other_labels);
  check_shares(shares, labels);
  options.validate();
  const at::Tensor scores = at_least_float(logits);
  const at::Tensor own = shares.to(scores.scalar_type()).unsqueeze(1);  // [N, 1]
  // In this order, as timm: a target that is as large as the threshold stays on its side.
  const at::Tensor targets = smoothed_targets(scores, labels, options.label_smoothing) * own +
                             smoothed_targets(scores, other_labels, options.label_smoothing) * (1 - own);
  return binary_loss(scores, targets, options);
}

at::Tensor distillation_loss(const at::Tensor& logits, const at::Tensor& teacher_logits, double temperature) {
  const bool fits = logits.dim() == 2 && logits.is_floating_point() && teacher_logits.is_floating_point() &&
                    teacher_logits.sizes() == logits.sizes();
  if (!fits || !(temperature > 0)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a student cannot be compared with its teacher",
                       .expected = "logits of one shape [N, classes], and a temperature above 0",
                       .actual = fmt::format("{} and {}, a temperature of {}", to_string(logits.sizes().vec()),
                                             to_string(teacher_logits.sizes().vec()), temperature)});
  }
  const at::Tensor student = at_least_float(logits);
  const at::Tensor teacher = teacher_logits.detach().to(student.scalar_type());
  constexpr int64_t kSum = 2;  // at::Reduction::Sum
  const at::Tensor divergence =
      at::kl_div(at::log_softmax(student / temperature, 1), at::log_softmax(teacher / temperature, 1), kSum,
                 /*log_target=*/true);
  return divergence.mul(temperature * temperature / static_cast<double>(logits.size(0)));
}

at::Tensor top_k_hits(const at::Tensor& logits, const at::Tensor& labels, int64_t k) {
  check(logits, labels);
  const at::NoGradGuard no_grad;
  const at::Tensor own = logits.gather(1, labels.unsqueeze(1));  // [N, 1]
  const at::Tensor larger = (logits > own).sum(1);               // [N]
  return (larger < k).logical_and(logits.isfinite().all(1));
}

at::Tensor top_k_correct(const at::Tensor& logits, const at::Tensor& labels, int64_t k) {
  return top_k_hits(logits, labels, k).sum();
}

}  // namespace trainyard::nn
