#include "trainyard/nn/quantization/calibration_images.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

using core::Error, core::ErrorCode;

constexpr int64_t kHeldOutPart = 4;  // every fourth image
constexpr int64_t kMostHeldOut = 64;
constexpr int64_t kLargestBatch = 32;
constexpr int64_t kFew = 32;  // with fewer images ranges are rough

void require_one_input(const Graph& graph) {
  if (graph.inputs().size() == 1) return;
  throw Error(ErrorCode::kUnsupported, {.problem = "a network of several inputs cannot be quantized",
                                        .where = graph.name,
                                        .expected = "one input",
                                        .actual = std::to_string(graph.inputs().size())});
}

void require_finite(const at::Tensor& batch, size_t index) {
  const at::Tensor finite = at::isfinite(batch).flatten(1).all(1);
  if (finite.all().item<bool>()) return;
  const int64_t image = finite.logical_not().nonzero().select(0, 0).item<int64_t>();
  throw Error(ErrorCode::kInvalidArgument, {.problem = "a calibration image has NaN or infinite numbers",
                                            .where = fmt::format("batch {}, image {}", index, image),
                                            .remedy = "leave it out, or repair how images are made"});
}

std::vector<std::string> unusual(const at::Tensor& images) {
  std::vector<std::string> warnings;
  const int64_t count = images.size(0);
  if (count < kFew) {
    warnings.push_back(fmt::format("only {} calibration image{}: ranges are rough", count, count == 1 ? "" : "s"));
  }
  const at::Tensor flat = images.flatten(1);
  if (flat.amax(1).eq(flat.amin(1)).all().item<bool>()) {
    warnings.emplace_back("each calibration image has one value in all its pixels");
  } else if (count > 1 && flat.eq(flat.narrow(0, 0, 1)).all().item<bool>()) {
    warnings.emplace_back("all calibration images are equal");
  }
  return warnings;
}

std::vector<at::Tensor> batches_of(const at::Tensor& images, const std::vector<int64_t>& which) {
  std::vector<at::Tensor> batches;
  const at::Tensor chosen = images.index_select(0, at::tensor(which, at::kLong));
  for (const at::Tensor& batch : chosen.split(kLargestBatch)) batches.push_back(batch);
  return batches;
}

}  // namespace

std::vector<at::Tensor> checked_batches(const Graph& graph, std::span<const at::Tensor> batches) {
  require_one_input(graph);
  std::vector<at::Tensor> checked;
  for (size_t i = 0; i < batches.size(); ++i) {
    const at::Tensor& batch = batches[i];
    const bool fits = batch.defined() && batch.is_floating_point() &&
                      batch.dim() == static_cast<int64_t>(graph.input_shape().size()) + 1 &&
                      batch.sizes().slice(1) == at::IntArrayRef(graph.input_shape());
    if (!fits) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "a calibration batch does not fit the network",
                   .where = fmt::format("batch {} for {}", i, graph.name),
                   .expected = fmt::format("floats of shape [N], N images of {}", to_string(graph.input_shape())),
                   .actual = batch.defined() ? to_string(batch.sizes().vec()) : "no tensor"});
    }
    if (batch.size(0) == 0) continue;
    require_finite(batch, i);
    checked.push_back(batch.detach().to(at::kCPU, at::kFloat));
  }
  if (checked.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "there is no calibration image",
                                              .where = graph.name,
                                              .expected = "some hundred images like those of the training",
                                              .actual = "none"});
  }
  return checked;
}

CalibrationImages calibration_images(const Graph& graph, std::span<const at::Tensor> batches) {
  const at::Tensor all = at::cat(checked_batches(graph, batches));
  CalibrationImages images{.warnings = unusual(all)};
  std::vector<int64_t> calibration, held_out;
  for (int64_t i = 0; i < all.size(0); ++i) {
    const bool held = std::ssize(held_out) < kMostHeldOut && i % kHeldOutPart == kHeldOutPart / 2;
    (held ? held_out : calibration).push_back(i);
  }
  if (held_out.empty()) held_out.push_back(all.size(0) - 1);
  if (all.size(0) == 2) calibration = {0};
  images.shared = all.size(0) == 1;
  images.calibration_count = std::ssize(calibration);
  images.held_out_count = std::ssize(held_out);
  images.calibration = batches_of(all, calibration);
  images.held_out = batches_of(all, held_out);
  return images;
}

}  // namespace trainyard::nn
