// Floats to bytes and back: maps, plain images and vectors.
#include <functional>
#include <numeric>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/plan/byte_step.h"

namespace trainyard::nn::cpu {
namespace {

int64_t features_of(const Value& value) {
  return std::accumulate(value.shape.begin() + 1, value.shape.end(), int64_t{1}, std::multiplies<>());
}

class ByteConversionStep : public ByteStep {
 public:
  ByteConversionStep(PlanBuilder& builder, ValueId from, ValueId to)
      : from_(builder.value(from)), to_(builder.value(to)) {
    set_values(builder, {from}, to);
  }

  void forward(Run& run) override { to_.dtype == DataType::kUint8 ? quantize(run) : dequantize(run); }

 private:
  void quantize(Run& run) const {
    const float inverse_scale = 1 / to_.scale.scale;
    const uint8_t zero = to_.scale.zero_point;
    auto* const output = output_at<uint8_t>(run);
    uint8_t* const non_finite = run.non_finite.data();
    if (from_.kind == Value::Kind::kMap) {
      return quantize_map({.shape = from_.map,
                           .dtype = from_.dtype,
                           .input = input_at(run),
                           .inverse_scale = inverse_scale,
                           .zero_point = zero,
                           .map = output,
                           .non_finite = non_finite});
    }
    if (to_.kind == Value::Kind::kPlain) {
      return quantize_vectors({.batch = to_.shape[0],
                               .features = features_of(to_),
                               .input = input_at<float>(run),
                               .inverse_scale = inverse_scale,
                               .zero_point = zero,
                               .output = output,
                               .non_finite = non_finite});
    }
    const int64_t pixels = to_.map.pixels();
    quantize_plain({.shape = to_.map,
                    .plain = input_at<float>(run),
                    .strides = {to_.map.channels * pixels, pixels, to_.map.width, 1},
                    .inverse_scale = inverse_scale,
                    .zero_point = zero,
                    .map = output,
                    .non_finite = non_finite});
  }

  void dequantize(const Run& run) const {
    const float scale = from_.scale.scale;
    const uint8_t zero = from_.scale.zero_point;
    const auto* const input = input_at<uint8_t>(run);
    if (to_.kind == Value::Kind::kMap) {
      return dequantize_map({.shape = to_.map,
                             .map = input,
                             .scale = scale,
                             .zero_point = zero,
                             .dtype = to_.dtype,
                             .output = output_at(run)});
    }
    auto* const output = output_at<float>(run);
    if (from_.kind == Value::Kind::kMap) {
      return dequantize_plain({.shape = from_.map, .map = input, .scale = scale, .zero_point = zero, .plain = output});
    }
    dequantize_vectors({.batch = to_.shape[0],
                        .features = features_of(to_),
                        .input = input,
                        .scale = scale,
                        .zero_point = zero,
                        .output = output});
  }

  const Value from_, to_;
};

}  // namespace

ValueId make_byte_conversion(PlanBuilder& builder, ValueId from, ValueId to) {
  const bool quantizes = builder.value(to).dtype == DataType::kUint8;
  if (quantizes == (builder.value(from).dtype == DataType::kUint8)) {
    throw core::Error(core::ErrorCode::kInternal, {.problem = "bytes have no conversion to another layout"});
  }
  builder.add_step(std::make_unique<ByteConversionStep>(builder, from, to), {}, quantizes ? "quantize" : "dequantize");
  return to;
}

}  // namespace trainyard::nn::cpu
