// What a layer in 8 bits keeps of its parameters: its weights as packed integers, and by what its sums of integers are
// scaled and shifted. All of it is made again when the parameter set has a new version.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/nn/cpu/convolution/onednn/packed_weights.h"
#include "trainyard/nn/cpu/plan/plan_builder.h"

namespace trainyard::nn::cpu {

class QuantizedWeights {
 public:
  // `norm` is the batch norm that is folded into a convolution, or null. `padded` is the number of output channels with
  // pad lanes, for which the vectors have zeros.
  QuantizedWeights(const PlanBuilder& builder, const Node& node, const Node* norm, float input_scale, int64_t padded,
                   int64_t packed_bytes);

  // Returns the packed weights. Calls pack(const int8_t* plain, int8_t* packed, int32_t* offsets) when they are out of
  // date; `plain` has the layout of the parameter.
  template <typename Pack>
  const int8_t* get(const Pack& pack) {
    const void* const packed = packed_.get(context_.parameters->version(), [&](void* target) {
      const at::Tensor plain = round();
      pack(plain.const_data_ptr<int8_t>(), static_cast<int8_t*>(target), offsets_.data());
    });
    return static_cast<const int8_t*>(packed);
  }

  // [padded]: for each output channel, minus the input's zero point times the sum of its weights.
  const int32_t* offsets() const { return offsets_.data(); }
  // [padded]: (float of a sum) * factor + bias is the output.
  const float* factors() const { return factors_.data(); }
  const float* bias() const { return bias_.data(); }
  int64_t bytes() const { return packed_.bytes(); }

 private:
  // Returns the weights as integers, and sets factors and biases.
  at::Tensor round();

  const BuildContext& context_;
  const Node& node_;
  const Node* norm_;
  const std::vector<float>& scales_;
  float input_scale_;
  std::vector<int32_t> offsets_;
  std::vector<float> factors_, bias_;
  PackedWeights packed_;
};

}  // namespace trainyard::nn::cpu
