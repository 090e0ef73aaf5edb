// The backward of batch normalization with the addition and the activation behind it, in two passes over the data. The
// first also serves a convolution's bias and activation, and a sum's activation.
#include "trainyard/core/cuda/element.cuh"
#include "trainyard/nn/cuda/kernels/activation_math.cuh"
#include "trainyard/nn/cuda/kernels/affine.cuh"
#include "trainyard/nn/cuda/kernels/row_sums.cuh"

namespace trainyard::nn::cuda {
namespace {

using namespace core::cuda;

template <typename T>
struct Source {
  const T *output_gradient, *second_gradient, *x, *y;
  Activation::Function function;
};

// kGradients: how many gradients the output has; second_gradient is that of the other reader.
template <typename T, int kVector, int kGradients>
struct Operands {
  Pack<T, kVector> output_gradient[kGradients], x, y;
};

template <typename T, int kVector, int kGradients>
__device__ inline Operands<T, kVector, kGradients> load_operands(const Source<T>& source, int64_t place) {
  Operands<T, kVector, kGradients> operands;
  operands.output_gradient[0] = load<T, kVector>(source.output_gradient + place);
  if constexpr (kGradients == 2) operands.output_gradient[1] = load<T, kVector>(source.second_gradient + place);
  if (source.x != nullptr) operands.x = load<T, kVector>(source.x + place);
  if (source.y != nullptr) operands.y = load<T, kVector>(source.y + place);
  return operands;
}

// dy * f'(z), rounded as it is stored, so that sums and stored values agree.
template <typename T, int kVector, Form kForm, int kGradients>
__device__ inline float gradient_of(const Source<T>& source, const Operands<T, kVector, kGradients>& operands,
                                    const AffineConstants<kVector>& constants, int v) {
  float dy = to_float(operands.output_gradient[0].value[v]);
  if constexpr (kGradients == 2) dy = to_float(from_float<T>(dy + to_float(operands.output_gradient[1].value[v])));
  if constexpr (kForm == Form::kNone) {
    return dy;
  } else {
    if (source.y != nullptr) return to_float(operands.y.value[v]) <= 0.0F ? 0.0F : dy;
    const float z = constants.apply(v, to_float(operands.x.value[v]));
    if constexpr (kForm == Form::kRelu) return z <= 0.0F ? 0.0F : dy;
    return to_float(from_float<T>(dy * derivative<kForm>(source.function, z)));
  }
}

template <typename T, int kVector, Form kForm, int kGradients>
__global__ void gradient_moments_kernel(Source<T> source, ChannelAffine affine, int64_t rows, int channels, T* gradient,
                                        float* partial) {
  const Lane<kVector> lane(channels);
  float sum[kVector] = {}, products[kVector] = {};
  if (lane.inside) {
    const AffineConstants<kVector> constants(affine, lane.first);
    each_row(
        lane, rows,
        [&](int64_t row) { return load_operands<T, kVector, kGradients>(source, row * channels + lane.first); },
        [&](int64_t row, const Operands<T, kVector, kGradients>& operands) {
          Pack<T, kVector> result;
#pragma unroll
          for (int v = 0; v < kVector; ++v) {
            const float g = gradient_of<T, kVector, kForm, kGradients>(source, operands, constants, v);
            result.value[v] = from_float<T>(g);
            sum[v] += g;
            if (source.x != nullptr) {
              products[v] = fmaf(g, to_float(operands.x.value[v]) - constants.center[v], products[v]);
            }
          }
          if (gradient != nullptr) store(gradient + row * channels + lane.first, result);
        });
  }
  if (partial != nullptr) write_sums(lane, channels, sum, products, partial);
}

__device__ inline void put(float* target, bool add, float value) {
  if (target != nullptr) *target = add ? *target + value : value;
}

__global__ __launch_bounds__(kFinishThreads) void finish_gradients_kernel(int64_t rows, int channels,
                                                                          const float* partial, int parts,
                                                                          ParameterGradients p) {
  const int channel = static_cast<int>(blockIdx.x) * kFinishWidth + static_cast<int>(threadIdx.x);
  const double2 sums = finish_sums(partial, parts, channels, channel);
  if (threadIdx.y != 0 || channel >= channels) return;
  const double inverse = p.inverse_deviation == nullptr ? 1.0 : static_cast<double>(p.inverse_deviation[channel]);
  put(p.bias == nullptr ? nullptr : p.bias + channel, p.add_bias, static_cast<float>(sums.x));
  put(p.weight == nullptr ? nullptr : p.weight + channel, p.add_weight, static_cast<float>(sums.y * inverse));
  if (p.coefficients == nullptr) return;
  const double count = static_cast<double>(rows);
  p.coefficients[channel] = static_cast<float>(sums.x / count);
  p.coefficients[channels + channel] = static_cast<float>(inverse * inverse * sums.y / count);
}

// dx = scale * (g - coefficients[0] - coefficients[1] * (x - center)); the differences first, for they may cancel.
template <typename T, int kVector, Form kForm, int kGradients>
__global__ void input_gradient_kernel(Source<T> source, ChannelAffine affine, int64_t rows, int channels,
                                      const float* coefficients, T* dx) {
  const Lane<kVector> lane(channels);
  if (!lane.inside) return;
  const AffineConstants<kVector> constants(affine, lane.first);
  float mean[kVector], slope[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    mean[v] = coefficients[lane.first + v];
    slope[v] = coefficients[channels + lane.first + v];
  }
  each_row(
      lane, rows,
      [&](int64_t row) { return load_operands<T, kVector, kGradients>(source, row * channels + lane.first); },
      [&](int64_t row, const Operands<T, kVector, kGradients>& operands) {
        Pack<T, kVector> result;
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          const float g = gradient_of<T, kVector, kForm, kGradients>(source, operands, constants, v);
          const float centered = to_float(operands.x.value[v]) - constants.center[v];
          result.value[v] = from_float<T>(constants.scale[v] * fmaf(-slope[v], centered, g - mean[v]));
        }
        store(dx + row * channels + lane.first, result);
      });
}

template <typename T>
Source<T> source_of(const ActivationGradient& of) {
  return {static_cast<const T*>(of.output_gradient), static_cast<const T*>(of.second_gradient),
          static_cast<const T*>(of.x), static_cast<const T*>(of.y), of.nonlinearity.function};
}

// Calls operation(form, element, vector, gradients), all as types.
template <typename Operation>
void with_gradients(const RowShape& shape, const ActivationGradient& of, const Operation& operation) {
  with_form(of.nonlinearity, [&](auto form) {
    with_element(shape.element, shape.grid.vector, [&](auto element, auto vector) {
      if (of.second_gradient == nullptr) {
        operation(form, element, vector, std::integral_constant<int, 1>{});
      } else {
        operation(form, element, vector, std::integral_constant<int, 2>{});
      }
    });
  });
}

}  // namespace

void gradient_moments(const RowShape& shape, const ActivationGradient& of, void* gradient, float* partial,
                      cudaStream_t stream) {
  with_gradients(shape, of, [&](auto form, auto element, auto vector, auto gradients) {
    using T = decltype(element);
    gradient_moments_kernel<T, decltype(vector)::value, decltype(form)::value, decltype(gradients)::value>
        <<<blocks_of(shape.grid), threads_of(shape.grid), sums_shared_bytes(shape.grid), stream>>>(
            source_of<T>(of), of.affine, shape.rows, shape.channels, static_cast<T*>(gradient), partial);
  });
  check_cuda(cudaGetLastError(), "gradient of an activation");
}

void finish_gradients(const RowShape& shape, const float* partial, const ParameterGradients& gradients,
                      cudaStream_t stream) {
  finish_gradients_kernel<<<finish_blocks(shape.channels), dim3(kFinishWidth, kFinishDepth), 0, stream>>>(
      shape.rows, shape.channels, partial, shape.grid.row_blocks, gradients);
  check_cuda(cudaGetLastError(), "gradients of scale and shift");
}

void input_gradient(const RowShape& shape, const ActivationGradient& of, const float* coefficients, void* dx,
                    cudaStream_t stream) {
  with_gradients(shape, of, [&](auto form, auto element, auto vector, auto gradients) {
    using T = decltype(element);
    input_gradient_kernel<T, decltype(vector)::value, decltype(form)::value, decltype(gradients)::value>
        <<<blocks_of(shape.grid), threads_of(shape.grid), 0, stream>>>(
            source_of<T>(of), of.affine, shape.rows, shape.channels, coefficients, static_cast<T*>(dx));
  });
  check_cuda(cudaGetLastError(), "gradient of a batch norm's input");
}

}  // namespace trainyard::nn::cuda
