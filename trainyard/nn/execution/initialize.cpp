// The n-th chunk of a parameter is filled from a stream of its own, so any number of threads gives the same numbers.

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/attention_windows.h"

namespace trainyard::nn {
namespace {

constexpr int64_t kChunk = 4096;  // elements; part of what a seed means
// Standard deviation of a standard normal cut at two standard deviations.
constexpr double kTruncatedDeviation = 0.87962566103423978;

// Inputs of one output (fan in) and outputs of one input (fan out), as TensorFlow and PyTorch count them: for
// [out, in, kh, kw] in * kh * kw and out * kh * kw.
double fan_of(at::IntArrayRef shape, Initializer::Fan fan) {
  double in = 1, out = 1;
  if (shape.size() == 1) in = out = static_cast<double>(shape[0]);
  if (shape.size() >= 2) {
    double field = 1;
    for (size_t i = 2; i < shape.size(); ++i) field *= static_cast<double>(shape[i]);
    in = static_cast<double>(shape[1]) * field;
    out = static_cast<double>(shape[0]) * field;
  }
  const double chosen = fan == Initializer::Fan::kIn ? in : fan == Initializer::Fan::kOut ? out : (in + out) / 2;
  return std::max(chosen, 1.0);
}

enum class Distribution { kNormal, kTruncatedNormal, kUniform };

template <typename scalar_t>
void fill(scalar_t* data, int64_t count, Distribution distribution, float scale, uint64_t seed, std::string_view name) {
  at::parallel_for(0, (count + kChunk - 1) / kChunk, 1, [&](int64_t begin, int64_t end) {
    std::array<float, kChunk> drawn;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      core::RandomStream stream(seed, name, {static_cast<uint64_t>(chunk)});
      scalar_t* const to = data + chunk * kChunk;
      const int64_t size = std::min(count - chunk * kChunk, kChunk);
      switch (distribution) {
        case Distribution::kNormal:
          stream.normals(drawn.data(), size);
          break;
        case Distribution::kTruncatedNormal:
          stream.truncated_normals(drawn.data(), size);
          break;
        case Distribution::kUniform:
          stream.uniforms(-scale, scale, drawn.data(), size);
          std::copy_n(drawn.data(), size, to);
          continue;
      }
      for (int64_t i = 0; i < size; ++i) to[i] = static_cast<scalar_t>(scale * drawn[i]);
    }
  });
}

// Sets the first filters of [out, in, kh, kw], as many as both have, to 1 in the middle of their own channel.
void make_first_filters_identity(const at::Tensor& weight) {
  const int64_t filters = std::min(weight.size(0), weight.size(1));
  weight.narrow(0, 0, filters).zero_();
  weight.narrow(0, 0, filters)
      .narrow(1, 0, filters)
      .select(3, weight.size(3) / 2)
      .select(2, weight.size(2) / 2)
      .fill_diagonal_(1);
}

}  // namespace

void initialize_tensor(at::Tensor tensor, const Initializer& init, uint64_t seed, std::string_view name) {
  Distribution distribution = Distribution::kNormal;
  double scale = init.value;
  switch (init.kind) {
    case Initializer::Kind::kConstant:
      tensor.fill_(init.value);
      return;
    case Initializer::Kind::kFromModule:
      return;
    case Initializer::Kind::kRelativePositions:
      tensor.copy_(at::tensor(relative_positions(static_cast<int64_t>(init.value)), at::kLong));
      return;
    case Initializer::Kind::kNormal:
      break;
    case Initializer::Kind::kTruncatedNormal:
      distribution = Distribution::kTruncatedNormal;
      break;
    case Initializer::Kind::kUniform:
      distribution = Distribution::kUniform;
      break;
    case Initializer::Kind::kVarianceScaling:
      distribution = Distribution::kTruncatedNormal;
      scale = std::sqrt(init.value / fan_of(tensor.sizes(), init.fan)) / kTruncatedDeviation;
      break;
    case Initializer::Kind::kHeNormal:
      scale = std::sqrt(init.value / fan_of(tensor.sizes(), init.fan));
      break;
    case Initializer::Kind::kHeUniform:
    case Initializer::Kind::kHeUniformIdentity:
      distribution = Distribution::kUniform;
      scale = std::sqrt(init.value / fan_of(tensor.sizes(), Initializer::Fan::kIn));
      break;
  }
  if (init.kind == Initializer::Kind::kHeUniformIdentity && tensor.dim() != 4) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "an identity needs the weight of a convolution, [out, in, height, width]",
                       .where = std::string(name),
                       .actual = fmt::format("{} dimensions", tensor.dim())});
  }
  if (!tensor.is_cpu() || !tensor.is_contiguous()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "initialize_tensor needs a contiguous CPU tensor", .where = std::string(name)});
  }
  AT_DISPATCH_FLOATING_TYPES(tensor.scalar_type(), "initialize_tensor", [&] {
    fill(tensor.data_ptr<scalar_t>(), tensor.numel(), distribution, static_cast<float>(scale), seed, name);
  });
  if (init.kind == Initializer::Kind::kHeUniformIdentity) make_first_filters_identity(tensor);
}

}  // namespace trainyard::nn
