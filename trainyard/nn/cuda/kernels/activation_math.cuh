// The activations of nn/ops.h and their derivatives by their input. Those that follow batch norms are compiled into a
// kernel of their own each; all others are one switch that a whole launch takes the same way, at the cost of registers
// for the longest of them.
#pragma once

#include <cmath>
#include <type_traits>

#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {

enum class Form { kNone, kRelu, kRelu6, kSilu, kHardSwish, kOther };

// The function of a form that is one function.
template <Form kForm>
constexpr Activation::Function kFunctionOf = kForm == Form::kRelu6       ? Activation::Function::kRelu6
                                             : kForm == Form::kSilu      ? Activation::Function::kSilu
                                             : kForm == Form::kHardSwish ? Activation::Function::kHardSwish
                                                                         : Activation::Function::kRelu;

template <typename Operation>
void with_form(Nonlinearity nonlinearity, const Operation& operation) {
  using Function = Activation::Function;
  if (!nonlinearity.present) return operation(std::integral_constant<Form, Form::kNone>{});
  switch (nonlinearity.function) {
    case Function::kRelu:
      return operation(std::integral_constant<Form, Form::kRelu>{});
    case Function::kRelu6:
      return operation(std::integral_constant<Form, Form::kRelu6>{});
    case Function::kSilu:
      return operation(std::integral_constant<Form, Form::kSilu>{});
    case Function::kHardSwish:
      return operation(std::integral_constant<Form, Form::kHardSwish>{});
    default:
      return operation(std::integral_constant<Form, Form::kOther>{});
  }
}

constexpr float kSqrtHalf = 0.70710678118654752F, kInverseSqrt2Pi = 0.39894228040143268F;

__device__ inline float sigmoid(float z) {
  return 1.0F / (1.0F + expf(-z));
}

// Not a number stays one, as in ATen: fmaxf would return the other operand.
__device__ inline float relu(float z) {
  return z <= 0.0F ? 0.0F : z;
}

__device__ inline float clamp(float z, float low, float high) {
  return z < low ? low : z > high ? high : z;
}

__device__ inline float activation_of(Activation::Function function, float z) {
  using Function = Activation::Function;
  switch (function) {
    case Function::kRelu:
      return relu(z);
    case Function::kRelu6:
      return clamp(z, 0.0F, 6.0F);
    case Function::kSilu:
      return z * sigmoid(z);
    case Function::kHardSwish:
      return z * clamp(z + 3.0F, 0.0F, 6.0F) / 6.0F;
    case Function::kHardSigmoid:
      return clamp(z + 3.0F, 0.0F, 6.0F) / 6.0F;
    case Function::kSigmoid:
      return sigmoid(z);
    case Function::kGelu:
      return 0.5F * z * (1.0F + erff(z * kSqrtHalf));
    case Function::kTanh:
      return tanhf(z);
  }
  return z;
}

// At the corners as ATen: 0 for relu at 0, relu6 and hard sigmoid at both ends; hard swish 0 at -3 and 1 from 3 on. For
// NaN, relu and hard swish pass the gradient on.
__device__ inline float derivative_of(Activation::Function function, float z) {
  using Function = Activation::Function;
  switch (function) {
    case Function::kRelu:
      return z <= 0.0F ? 0.0F : 1.0F;
    case Function::kRelu6:
      return z > 0.0F && z < 6.0F ? 1.0F : 0.0F;
    case Function::kSilu: {
      const float s = sigmoid(z);
      return s * (1.0F + z * (1.0F - s));
    }
    case Function::kHardSwish:
      return z <= -3.0F ? 0.0F : z < 3.0F ? (2.0F * z + 3.0F) / 6.0F : 1.0F;
    case Function::kHardSigmoid:
      return z > -3.0F && z < 3.0F ? 1.0F / 6.0F : 0.0F;
    case Function::kSigmoid: {
      const float s = sigmoid(z);
      return s * (1.0F - s);
    }
    case Function::kGelu:
      return 0.5F * (1.0F + erff(z * kSqrtHalf)) + z * kInverseSqrt2Pi * expf(-0.5F * z * z);
    case Function::kTanh: {
      const float t = tanhf(z);
      return 1.0F - t * t;
    }
  }
  return 1.0F;
}

template <Form kForm>
__device__ inline float activate(Activation::Function function, float z) {
  if constexpr (kForm == Form::kNone) {
    return z;
  } else if constexpr (kForm == Form::kOther) {
    return activation_of(function, z);
  } else {
    return activation_of(kFunctionOf<kForm>, z);
  }
}

template <Form kForm>
__device__ inline float derivative(Activation::Function function, float z) {
  if constexpr (kForm == Form::kOther) {
    return derivative_of(function, z);
  } else {
    return derivative_of(kFunctionOf<kForm>, z);
  }
}

}  // namespace trainyard::nn::cuda
