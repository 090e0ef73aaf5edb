#include "trainyard/nn/execution/multibox_loss.h"

#include <string>
#include <tuple>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {
namespace {

std::string description(const at::Tensor& tensor) {
  return fmt::format("{} of {}", to_string(tensor.sizes().vec()), toString(tensor.scalar_type()));
}

void check(const at::Tensor& offsets, const at::Tensor& logits, const at::Tensor& target_offsets,
           const at::Tensor& classes, const at::Tensor& num_matched) {
  const bool is_batch = offsets.dim() == 3 && logits.dim() == 3 && offsets.size(2) == 4 && logits.size(2) > 0 &&
                        offsets.size(0) == logits.size(0) && offsets.size(1) == logits.size(1);
  const bool fits = is_batch && offsets.is_floating_point() && logits.scalar_type() == offsets.scalar_type() &&
                    target_offsets.is_floating_point() && target_offsets.sizes() == offsets.sizes() &&
                    classes.scalar_type() == at::kLong && classes.sizes() == offsets.sizes().slice(0, 2) &&
                    num_matched.scalar_type() == at::kLong && num_matched.sizes() == offsets.sizes().slice(0, 1);
  if (fits) return;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = "predictions and targets of boxes do not fit",
       .expected = "offsets [N, D, 4] and logits [N, D, C] of one float type, target offsets [N, D, 4] of a float "
                   "type, classes [N, D] and numbers of matched boxes [N] of int64",
       .actual = fmt::format("{}, {}, {}, {} and {}", description(offsets), description(logits),
                             description(target_offsets), description(classes), description(num_matched))});
}

void check_values(const at::Tensor& classes, int64_t count, const at::Tensor& num_matched) {
  const at::Tensor plain = classes.contiguous(), matched = num_matched.contiguous();
  const int64_t boxes = plain.size(1);
  for (int64_t n = 0; n < plain.size(0); ++n) {
    const auto fail = [&](std::string problem, std::string expected, int64_t actual) {
      return core::Error(core::ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                                             .where = fmt::format("image {} of the batch", n),
                                                             .expected = std::move(expected),
                                                             .actual = fmt::format("{}", actual)});
    };
    if (const int64_t number = matched.const_data_ptr<int64_t>()[n]; number < 0) {
      throw fail("the number of matched boxes is negative", "0 or more", number);
    }
    const int64_t* const labels = plain.const_data_ptr<int64_t>() + n * boxes;
    for (int64_t d = 0; d < boxes; ++d) {
      if (labels[d] >= 0 && labels[d] < count) continue;
      throw fail(fmt::format("the class of box {} is not one of the model's", d), fmt::format("0 to {}", count - 1),
                 labels[d]);
    }
  }
}

}  // namespace

at::Tensor multibox_loss(const at::Tensor& offsets, const at::Tensor& logits, const at::Tensor& target_offsets,
                         const at::Tensor& classes, const at::Tensor& num_matched, MultiboxParts* parts) {
  check(offsets, logits, target_offsets, classes, num_matched);
  if (classes.is_cpu() && num_matched.is_cpu()) check_values(classes, logits.size(2), num_matched);
  const at::ScalarType type = at::isReducedFloatingType(logits.scalar_type()) ? at::kFloat : logits.scalar_type();
  const at::Tensor positive = classes.gt(0);
  const at::Tensor entropy = at::log_softmax(logits.to(type), 2).gather(2, classes.unsqueeze(2)).squeeze(2).neg();
  at::Tensor weight;  // [N, D]: how often the cross entropy of a box counts
  {
    const at::NoGradGuard no_grad;
    const at::Tensor order =
        std::get<1>(entropy.masked_fill(positive, 0).sort(/*stable=*/true, /*dim=*/1, /*descending=*/true));
    const at::Tensor rank = std::get<1>(order.sort(/*stable=*/true, /*dim=*/1));
    weight = positive.to(type) + rank.lt(num_matched.mul(3).unsqueeze(1)).to(type);
  }
  const at::Tensor distance = (offsets.to(type) - target_offsets.to(type)).abs();
  const at::Tensor smooth = at::where(distance.le(1), distance.square().mul(0.5), distance.sub(0.5)).sum(2);
  const auto mean = [&](const at::Tensor& sums) {
    return at::where(num_matched.gt(0), sums.sum(1) / num_matched.clamp_min(1).to(type), at::zeros_like(sums.sum(1)))
        .mean();
  };
  const at::Tensor class_loss = mean(entropy * weight), box_loss = mean(smooth * positive.to(type));
  if (parts != nullptr) *parts = {class_loss.detach(), box_loss.detach()};
  return class_loss + box_loss;
}

at::Tensor multibox_loss(const at::Tensor& output, const at::Tensor& target_offsets, const at::Tensor& classes,
                         const at::Tensor& num_matched, MultiboxParts* parts) {
  const bool fits = output.dim() == 3 && output.size(2) > 4;
  if (!fits) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "predictions of boxes have the wrong shape",
                                                          .expected = "[N, D, 4 + C]",
                                                          .actual = description(output)});
  }
  return multibox_loss(output.narrow(2, 0, 4), output.narrow(2, 4, output.size(2) - 4), target_offsets, classes,
                       num_matched, parts);
}

}  // namespace trainyard::nn
