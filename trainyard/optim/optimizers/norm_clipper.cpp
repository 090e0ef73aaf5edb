#include "trainyard/optim/optimizers/norm_clipper.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/segment_parts.h"

namespace trainyard::optim {
namespace {

constexpr double kTorchEpsilon = 1e-6;       // clip_grad_norm_'s
constexpr double kLeastWeightNorm = 1e-3;    // of the paper of adaptive clipping
constexpr double kLeastGradientNorm = 1e-6;  // of its code

// Returns how many units a parameter has that is clipped adaptively.
int64_t unit_count(const nn::Shape& shape) {
  return shape.size() > 1 && shape[0] > 0 ? shape[0] : 1;
}

}  // namespace

void NormClip::validate() const {
  if (std::isfinite(bound) && bound > 0) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the bound of clipping by norm is not usable",
                                                        .expected = "a finite number above 0",
                                                        .actual = fmt::format("{}", bound)});
}

double clip_factor(const NormClip& clip, double norm) {
  // Not std::min and std::max, so that a norm that is not a number stays one.
  if (clip.rule == NormClipRule::kPyTorch) {
    const double factor = clip.bound / (norm + kTorchEpsilon);
    return factor > 1 ? 1 : factor;
  }
  if (clip.kind == NormClipKind::kGlobal && !std::isfinite(norm)) return std::numeric_limits<double>::quiet_NaN();
  return norm <= clip.bound ? 1 : clip.bound / norm;
}

double adaptive_clip_factor(double bound, double gradient_norm, double weight_norm) {
  const double most = bound * std::max(weight_norm, kLeastWeightNorm);
  return gradient_norm > most ? most / std::max(gradient_norm, kLeastGradientNorm) : 1;
}

NormClipper::NormClipper(const NormClip& clip, const nn::ParameterSet& parameters) : clip_(clip) {
  const std::vector<nn::Segment>& segments = parameters.segments();
  excluded_.assign(segments.size(), false);
  for (const std::string& pattern : clip_.excluded) {
    for (const nn::ParameterId id : parameters.matching(pattern)) {
      excluded_[static_cast<size_t>(&parameters.segment(id) - segments.data())] = true;
    }
  }
  for (size_t s = 0; s < segments.size(); ++s) {
    const nn::Segment& segment = segments[s];
    const int64_t count = clip_.kind == NormClipKind::kAdaptive ? unit_count(segment.spec.shape) : 1;
    units_.push_back(
        {.offset = segment.offset, .size = segment.count / count, .count = count, .first = factors_.size()});
    for (int64_t u = 0; u < count && !excluded_[s]; ++u) {
      const int64_t begin = segment.offset + u * units_[s].size, end = begin + units_[s].size;
      for (int64_t at = begin; at < end; at += kPartElements) {
        parts_.push_back({.begin = at, .count = std::min(kPartElements, end - at), .segment = s});
        unit_of_part_.push_back(factors_.size() + static_cast<size_t>(u));
      }
    }
    factors_.resize(factors_.size() + static_cast<size_t>(count), 1.0);
  }
}

void NormClipper::measure(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients) {
  measure_on_host(optimizer, state, gradients, parts_, clips_regularization(), clip_.kind == NormClipKind::kAdaptive);
  set_factors();
}

void NormClipper::set_factors() {
  double all = 0;
  for (size_t p = 0; p < parts_.size();) {
    const size_t unit = unit_of_part_[p];
    double gradient = 0, weight = 0;
    for (; p < parts_.size() && unit_of_part_[p] == unit; ++p) {
      gradient += parts_[p].gradient_squares;
      weight += parts_[p].weight_squares;
    }
    all += gradient;
    if (clip_.kind == NormClipKind::kParameter) factors_[unit] = clip_factor(clip_, std::sqrt(gradient));
    if (clip_.kind == NormClipKind::kAdaptive) {
      factors_[unit] = adaptive_clip_factor(clip_.bound, std::sqrt(gradient), std::sqrt(weight));
    }
  }
  if (clip_.kind != NormClipKind::kGlobal) return;
  const double factor = clip_factor(clip_, std::sqrt(all));
  for (const size_t unit : unit_of_part_) factors_[unit] = factor;
}

void clip_with_operators(const Optimizer& optimizer, const NormClipper& clipper) {
  const nn::ParameterSet& set = optimizer.parameters();
  const NormClip& clip = clipper.clip();
  const auto clipped = [&](size_t s) { return optimizer.trainable(s) && clipper.clips(s); };
  const auto factor_of = [&](const at::Tensor& norm) {
    if (clip.rule == NormClipRule::kPyTorch) return norm.add(kTorchEpsilon).reciprocal().mul(clip.bound).clamp_max(1);
    const at::Tensor factor = norm.clamp_min(clip.bound).reciprocal().mul(clip.bound);
    // Infinity less infinity is not a number.
    return clip.kind == NormClipKind::kGlobal ? factor.add(norm.sub(norm)) : factor;
  };
  const auto norm_of = [](const at::Tensor& tensor) {
    return at::linalg_vector_norm(tensor, 2, at::OptionalIntArrayRef(), false, at::kDouble);
  };
  at::Tensor squares = at::zeros({}, set.values().options().dtype(at::kDouble));
  for (size_t s = 0; s < set.segments().size(); ++s) {
    if (!clipped(s)) continue;
    const nn::ParameterId id = set.segments()[s].id;
    at::Tensor gradient = set.gradient(id);
    if (clip.kind == NormClipKind::kGlobal) squares.add_(norm_of(gradient).square());
    if (clip.kind == NormClipKind::kParameter) gradient.mul_(factor_of(norm_of(gradient)).to(gradient.scalar_type()));
    if (clip.kind != NormClipKind::kAdaptive) continue;
    const int64_t units = unit_count(set.segments()[s].spec.shape);
    const auto norms = [&](const at::Tensor& tensor) {
      return at::linalg_vector_norm(tensor.reshape({units, -1}), 2, at::IntArrayRef{1}, true, at::kDouble);
    };
    const at::Tensor most = norms(set.value(id)).clamp_min(kLeastWeightNorm).mul(clip.bound);
    const at::Tensor norm = norms(gradient);
    const at::Tensor factor = most.div(norm.clamp_min(kLeastGradientNorm)).masked_fill(norm.le(most), 1);
    gradient.view({units, -1}).mul_(factor.to(gradient.scalar_type()));
  }
  if (clip.kind != NormClipKind::kGlobal) return;
  const at::Tensor factor = factor_of(squares.sqrt()).to(set.values().scalar_type());
  for (size_t s = 0; s < set.segments().size(); ++s) {
    if (clipped(s)) set.gradient(set.segments()[s].id).mul_(factor);
  }
}

}  // namespace trainyard::optim
