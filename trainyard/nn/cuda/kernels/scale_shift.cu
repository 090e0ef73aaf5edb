// y = f(affine(x) + residual): a batch norm with the addition and the activation behind it, a convolution's bias with
// its activation, a sum with its activation.
#include "trainyard/core/cuda/element.cuh"
#include "trainyard/nn/cuda/kernels/activation_math.cuh"
#include "trainyard/nn/cuda/kernels/affine.cuh"
#include "trainyard/nn/cuda/kernels/row_sums.cuh"

namespace trainyard::nn::cuda {
namespace {

using namespace core::cuda;

template <typename T, int kVector>
struct Operands {
  Pack<T, kVector> x, residual;
};

template <typename T, int kVector, Form kForm>
__global__ void scale_shift_kernel(const T* x, const T* residual, int64_t rows, int channels, ChannelAffine affine,
                                   Activation::Function function, T* y) {
  const Lane<kVector> lane(channels);
  if (!lane.inside) return;
  const AffineConstants<kVector> constants(affine, lane.first);
  each_row(
      lane, rows,
      [&](int64_t row) {
        Operands<T, kVector> operands;
        operands.x = load<T, kVector>(x + row * channels + lane.first);
        if (residual != nullptr) operands.residual = load<T, kVector>(residual + row * channels + lane.first);
        return operands;
      },
      [&](int64_t row, const Operands<T, kVector>& operands) {
        Pack<T, kVector> result;
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          float z = constants.apply(v, to_float(operands.x.value[v]));
          if (residual != nullptr) z += to_float(operands.residual.value[v]);
          result.value[v] = from_float<T>(activate<kForm>(function, z));
        }
        store(y + row * channels + lane.first, result);
      });
}

}  // namespace

void scale_shift_activate(const RowShape& shape, const void* x, const void* residual, const ChannelAffine& affine,
                          Nonlinearity nonlinearity, void* y, cudaStream_t stream) {
  with_form(nonlinearity, [&](auto form) {
    with_element(shape.element, shape.grid.vector, [&](auto element, auto vector) {
      using T = decltype(element);
      scale_shift_kernel<T, decltype(vector)::value, decltype(form)::value>
          <<<blocks_of(shape.grid), threads_of(shape.grid), 0, stream>>>(
              static_cast<const T*>(x), static_cast<const T*>(residual), shape.rows, shape.channels, affine,
              nonlinearity.function, static_cast<T*>(y));
    });
  });
  check_cuda(cudaGetLastError(), "scale, shift and activation");
}

}  // namespace trainyard::nn::cuda
