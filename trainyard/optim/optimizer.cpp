#include "trainyard/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include "trainyard/core/error.h"

namespace trainyard::optim {

using core::Error;
using core::ErrorCode;

OptimizerRegistry& optimizers() {
  static OptimizerRegistry registry("optimizer");
  return registry;
}

void OptimizerOptions::validate() const {
  const auto require = [](bool good, std::string_view what, std::string_view expected, double actual) {
    if (good) return;
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is not usable", what),
                                              .expected = std::string(expected),
                                              .actual = fmt::format("{}", actual)});
  };
  require(momentum >= 0 && momentum <= 1, "momentum", "a number in [0, 1]", momentum);
  require(std::isfinite(weight_decay) && weight_decay >= 0, "weight decay", "a finite number, at least 0",
          weight_decay);
  if (gradient_clip) require(*gradient_clip > 0, "gradient clip", "a number above 0", *gradient_clip);
}

Optimizer::Optimizer(nn::ParameterSet& parameters, OptimizerOptions options)
    : parameters_(&parameters), options_(options) {
  options_.validate();
  if (!parameters.allocated()) {
    throw Error(ErrorCode::kInvalidArgument, "an optimizer needs a parameter set that is allocated");
  }
  const at::Tensor values = parameters.values();
  if (values.scalar_type() != at::kFloat && values.scalar_type() != at::kDouble) {
    throw Error(ErrorCode::kUnsupported, {.problem = "optimizers work on float and double parameters",
                                          .actual = at::toString(values.scalar_type())});
  }
  if (!values.is_cpu()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "optimizers work on the CPU", .actual = values.device().str()});
  }
}

at::Tensor Optimizer::add_slot(std::string name, double initial) {
  slots_.push_back({std::move(name), at::full_like(parameters_->values(), initial)});
  return slots_.back().values;
}

at::Tensor Optimizer::slot_view(const Slot& slot, const nn::Segment& segment) const {
  return slot.values.narrow(0, segment.offset, segment.count).view(segment.spec.shape);
}

void Optimizer::save(core::StateWriter& writer) const {
  for (const Slot& slot : slots_) {
    for (const nn::Segment& segment : parameters_->segments()) {
      writer.tensor(segment.spec.name + "." + slot.name, slot_view(slot, segment));
    }
  }
}

void Optimizer::load(const core::StateReader& reader) {
  for (const Slot& slot : slots_) {
    for (const nn::Segment& segment : parameters_->segments()) {
      at::Tensor view = slot_view(slot, segment);
      reader.tensor(segment.spec.name + "." + slot.name, view);
    }
  }
}

namespace {

constexpr int64_t kSquareBlock = 1 << 16;

// In eight lanes, which the compiler may keep in vector registers: the order of the additions is part of the result.
template <typename T>
double sum_of_squares(const T* values, int64_t count) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[static_cast<size_t>(lane)] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace

at::Tensor l2_loss(const nn::ParameterSet& parameters, double weight_decay) {
  struct Block {
    int64_t offset, count;
    double sum;
  };
  std::vector<Block> blocks;
  for (const nn::Segment& segment : parameters.segments()) {
    if (!segment.spec.decay) continue;
    for (int64_t done = 0; done < segment.count; done += kSquareBlock) {
      blocks.push_back({segment.offset + done, std::min(kSquareBlock, segment.count - done), 0.0});
    }
  }
  const at::Tensor values = parameters.values();
  const bool is_double = values.scalar_type() == at::kDouble;
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 4, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      Block& block = blocks[static_cast<size_t>(b)];
      block.sum = is_double ? sum_of_squares(values.const_data_ptr<double>() + block.offset, block.count)
                            : sum_of_squares(values.const_data_ptr<float>() + block.offset, block.count);
    }
  });
  double sum = 0;
  for (const Block& block : blocks) sum += block.sum;
  return at::scalar_tensor(weight_decay * sum / 2, at::kDouble);
}

}  // namespace trainyard::optim
