#include "trainyard/nn/cpu/convolution_choice.h"

namespace trainyard::nn::cpu {

std::unique_ptr<ConvolutionKernel> choose_convolution(const ConvolutionShape& shape,
                                                      ConvolutionKernel::Options options) {
  options.algorithm = ConvolutionAlgorithm::kWinograd;
  if (shape.dtype == DataType::kFloat && shape.kernel_height == 3 && shape.stride_height == 1 &&
      shape.in_channels >= 32) {
    if (auto kernel = ConvolutionKernel::make(shape, options)) return kernel;
  }
  options.algorithm = ConvolutionAlgorithm::kDirect;
  return ConvolutionKernel::make(shape, options);
}

}  // namespace trainyard::nn::cpu
