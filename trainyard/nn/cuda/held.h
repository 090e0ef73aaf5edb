// Keeps values other than tensors from the forward to the backward of an autograd function.
#pragma once

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

namespace trainyard::nn::cuda {

// What functions of autograd are written with.
using torch::autograd::AutogradContext, torch::autograd::variable_list;

template <typename T>
struct Held : torch::CustomClassHolder {
  explicit Held(T held) : value(std::move(held)) {}
  T value;
};

template <typename T>
void hold(torch::autograd::AutogradContext& context, T value) {
  context.saved_data["held"] = c10::IValue::make_capsule(c10::make_intrusive<Held<T>>(std::move(value)));
}

// Returns the value of hold(), which lives as long as the context.
template <typename T>
const T& held(const torch::autograd::AutogradContext& context) {
  return static_cast<const Held<T>&>(*context.saved_data.at("held").toCapsule()).value;
}

}  // namespace trainyard::nn::cuda
