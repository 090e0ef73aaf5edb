#include "trainyard/nn/cpu/plan/exact_convolution.h"

#include <memory>

#include <ATen/ops/from_blob.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/plan/group_by_group.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

// Returns the input as a map. Where it comes plain, `memory` holds the map.
const void* blocked(const ConvolutionShape& s, const void* source, at::Tensor& memory) {
  if (!s.plain_input) return source;
  const MapShape map{s.batch, s.in_channels, s.in_height, s.in_width, channel_block()};
  memory = byte_memory(map.elements() * size_of(s.dtype));
  const at::Tensor plain =
      at::from_blob(const_cast<void*>(source),  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
                    {s.batch, s.in_channels, s.in_height, s.in_width},
                    s.dtype == DataType::kFloat ? at::kFloat : at::kBFloat16)
          .to(at::kFloat);
  to_blocked({.shape = map,
              .dtype = s.dtype,
              .plain = plain.const_data_ptr<float>(),
              .strides = {map.channels * map.pixels(), map.pixels(), map.width, 1},
              .map = memory.data_ptr()});
  return memory.const_data_ptr();
}

std::unique_ptr<ConvolutionKernel> kernel_of(const ConvolutionShape& shape, ConvolutionKernel::Options options) {
  options.algorithm = ConvolutionAlgorithm::kDirect;
  options.activation = UnitActivation::kNone;
  options.exact = true;
  std::unique_ptr<ConvolutionKernel> kernel = ConvolutionKernel::make(shape, options);
  if (kernel == nullptr)
    throw core::Error(core::ErrorCode::kInternal, {.problem = "no exact kernel for a convolution"});
  return kernel;
}

}  // namespace

void convolve_exactly(const ConvolutionShape& shape, const ConvolutionKernel::Options& options, const float* weight,
                      const float* bias, const void* source, void* output) {
  at::Tensor memory;
  source = blocked(shape, source, memory);
  ConvolutionShape blocked_shape = shape;
  blocked_shape.plain_input = false;
  const std::unique_ptr<ConvolutionKernel> kernel = kernel_of(blocked_shape, options);
  if (kernel->mixes_groups()) {
    return convolve_groups(blocked_shape, options.sum, weight, bias, source, output);
  }
  const at::Tensor packed = byte_memory(kernel->weights_bytes()), scratch = byte_memory(kernel->scratch_bytes());
  kernel->pack(weight, packed.data_ptr());
  kernel->forward(source, packed.data_ptr(), bias, output, scratch.data_ptr());
}

void exact_weight_gradient(const ConvolutionShape& shape, const void* source, const void* output_gradient,
                           float* weight_gradient) {
  at::Tensor memory;
  source = blocked(shape, source, memory);
  ConvolutionShape blocked_shape = shape;
  blocked_shape.plain_input = false;
  blocked_shape.bias = false;
  const std::unique_ptr<ConvolutionKernel> kernel =
      kernel_of(blocked_shape, {.direction = ConvolutionDirection::kBackwardWeights});
  const at::Tensor packed = byte_memory(kernel->weights_bytes()), scratch = byte_memory(kernel->scratch_bytes());
  kernel->backward_weights(source, output_gradient, packed.data_ptr(), nullptr, scratch.data_ptr());
  kernel->unpack(packed.const_data_ptr(), weight_gradient);
}

}  // namespace trainyard::nn::cpu
