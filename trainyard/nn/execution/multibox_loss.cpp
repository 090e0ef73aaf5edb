#include "trainyard/nn/execution/multibox_loss.h"

#include <string>
#include <tuple>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/multibox_rows.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {
namespace {

std::string description(const at::Tensor& tensor) {
  return fmt::format("{} of {}", to_string(tensor.sizes().vec()), toString(tensor.scalar_type()));
}

void check(const at::Tensor& output, const at::Tensor& target_offsets, const at::Tensor& classes,
           const at::Tensor& num_matched) {
  const bool is_batch = output.dim() == 3 && output.size(2) > 4 && output.is_floating_point();
  const bool fits = is_batch && target_offsets.is_floating_point() && target_offsets.dim() == 3 &&
                    target_offsets.size(2) == 4 && target_offsets.sizes().slice(0, 2) == output.sizes().slice(0, 2) &&
                    classes.scalar_type() == at::kLong && classes.sizes() == output.sizes().slice(0, 2) &&
                    num_matched.scalar_type() == at::kLong && num_matched.sizes() == output.sizes().slice(0, 1);
  if (fits) return;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = "predictions and targets of boxes do not fit",
       .expected = "output [N, D, 4 + C] and target offsets [N, D, 4] of float types, classes [N, D] and numbers of "
                   "matched boxes [N] of int64",
       .actual = fmt::format("{}, {}, {} and {}", description(output), description(target_offsets),
                             description(classes), description(num_matched))});
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

struct MultiboxFunction : torch::autograd::Function<MultiboxFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            const at::Tensor& target_offsets, const at::Tensor& classes, const at::Tensor& num_matched,
                            MultiboxParts* parts) {
    const at::ScalarType type = MultiboxRows::number_type(output);
    const MultiboxRows rows{output.contiguous(), target_offsets.to(type).contiguous(), classes.contiguous(),
                            num_matched.contiguous()};
    const at::Tensor weights = at::empty(classes.sizes(), at::kByte);
    const MultiboxSums sums = multibox_forward(rows, weights);
    context->save_for_backward({rows.output, rows.target_offsets, rows.classes, rows.num_matched, weights});
    if (parts != nullptr) *parts = {at::scalar_tensor(sums.class_loss, type), at::scalar_tensor(sums.box_loss, type)};
    return at::scalar_tensor(sums.class_loss + sums.box_loss, type);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const MultiboxRows rows{saved[0], saved[1], saved[2], saved[3]};
    return {multibox_backward(rows, saved[4], gradients[0].item<double>()), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor multibox_of_operators(const at::Tensor& output, const at::Tensor& target_offsets, const at::Tensor& classes,
                                 const at::Tensor& num_matched, MultiboxParts* parts) {
  const at::ScalarType type = at::isReducedFloatingType(output.scalar_type()) ? at::kFloat : output.scalar_type();
  const at::Tensor offsets = output.narrow(2, 0, 4).to(type), logits = output.narrow(2, 4, output.size(2) - 4).to(type);
  const at::Tensor positive = classes.gt(0);
  const at::Tensor entropy = at::log_softmax(logits, 2).gather(2, classes.unsqueeze(2)).squeeze(2).neg();
  at::Tensor weight;  // [N, D]: how often the cross entropy of a box counts
  {
    const at::NoGradGuard no_grad;
    const at::Tensor order =
        std::get<1>(entropy.masked_fill(positive, 0).sort(/*stable=*/true, /*dim=*/1, /*descending=*/true));
    const at::Tensor rank = order.argsort(int64_t{1}, /*descending=*/false);
    const at::Tensor hardest = num_matched.clamp_max(classes.size(1)).mul(3).unsqueeze(1);
    weight = positive.to(type) + rank.lt(hardest).to(type);
  }
  const at::Tensor distance = (offsets - target_offsets.to(type)).abs();
  const at::Tensor smooth = at::where(distance.le(1), distance.square().mul(0.5), distance.sub(0.5)).sum(2);
  const auto mean = [&](const at::Tensor& losses) {
    const at::Tensor sums = losses.sum(1);
    return at::where(num_matched.gt(0), sums / num_matched.clamp_min(1).to(type), at::zeros_like(sums)).mean();
  };
  const at::Tensor class_loss = mean(entropy * weight), box_loss = mean(smooth * positive.to(type));
  if (parts != nullptr) *parts = {class_loss.detach(), box_loss.detach()};
  return class_loss + box_loss;
}

at::Tensor multibox_loss(const at::Tensor& output, const at::Tensor& target_offsets, const at::Tensor& classes,
                         const at::Tensor& num_matched, MultiboxParts* parts) {
  check(output, target_offsets, classes, num_matched);
  if (classes.is_cpu() && num_matched.is_cpu()) check_values(classes, output.size(2) - 4, num_matched);
  const bool on_cpu = output.is_cpu() && target_offsets.is_cpu() && classes.is_cpu() && num_matched.is_cpu();
  if (!on_cpu) return multibox_of_operators(output, target_offsets, classes, num_matched, parts);
  return MultiboxFunction::apply(output, target_offsets, classes, num_matched, parts);
}

at::Tensor multibox_loss(const at::Tensor& offsets, const at::Tensor& logits, const at::Tensor& target_offsets,
                         const at::Tensor& classes, const at::Tensor& num_matched, MultiboxParts* parts) {
  const bool fits = offsets.dim() == 3 && logits.dim() == 3 && offsets.size(2) == 4 &&
                    offsets.sizes().slice(0, 2) == logits.sizes().slice(0, 2) &&
                    offsets.scalar_type() == logits.scalar_type();
  if (!fits) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "offsets and logits of boxes do not fit",
                       .expected = "[N, D, 4] and [N, D, C] of one float type",
                       .actual = fmt::format("{} and {}", description(offsets), description(logits))});
  }
  return multibox_loss(at::cat({offsets, logits}, 2), target_offsets, classes, num_matched, parts);
}

}  // namespace trainyard::nn
