// Sums of maps, activations and their derivatives.
#include "trainyard/nn/cpu/elementwise/rounded_gelu.h"
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T, int count>
struct Inputs {
  const T* maps[count];
  explicit Inputs(const void* const* from) {
    for (int i = 0; i < count; ++i) maps[i] = static_cast<const T*>(from[i]);
  }
  bool have(const void* map) const {
    bool found = false;
    for (const T* input : maps) found = found || input == map;
    return found;
  }
  [[gnu::always_inline]] Floats sum(int64_t at) const {
    Floats total = load(maps[0] + at);
#pragma GCC unroll 4
    for (int i = 1; i < count; ++i) total += load(maps[i] + at);
    return total;
  }
};

// Calls use(inputs) with Inputs<T, count>.
template <typename T, typename Use>
void with_inputs(const void* const* maps, int count, const Use& use) {
  static_assert(kMaxGradients == 4);
  switch (count) {
    case 1:
      return use(Inputs<T, 1>(maps));
    case 2:
      return use(Inputs<T, 2>(maps));
    case 3:
      return use(Inputs<T, 3>(maps));
    default:
      return use(Inputs<T, 4>(maps));
  }
}

template <typename T>
void sum(const SumForward& a) {
  with_inputs<T>(a.inputs, a.input_count, [&](const auto& inputs) {
    const Output<T> output(a.output, a.shape, inputs.have(a.output));
    if (a.activation == UnitActivation::kNone) {
      in_pieces(a.shape,
                [&](const Piece& piece) { each_pixel(piece, [&](int64_t at) { output.put(at, inputs.sum(at)); }); });
    } else if (a.mask == nullptr) {
      in_pieces(a.shape, [&](const Piece& piece) {
        each_pixel(piece, [&](int64_t at) { output.put(at, activate<UnitActivation::kRelu>(inputs.sum(at))); });
      });
    } else {
      in_pieces(a.shape, [&](const Piece& piece) {
        each_pixel(piece, [&](int64_t at) {
          const Floats total = inputs.sum(at);
          store_bits(a.mask, at, passing(total));
          output.put(at, activate<UnitActivation::kRelu>(total));
        });
      });
    }
  });
}

template <typename T>
void forward(const ActivationForward& a) {
  const T* const input = static_cast<const T*>(a.input);
  const Output<T> output(a.output, a.shape, a.output == a.input);
  with_activation(a.activation, [&](auto kind) {
    const ActivationTo<kind.kValue, T> activated;
    in_pieces(a.shape, [&](const Piece& piece) {
      const Bits lanes = channel_lanes(a.shape, piece.plane % a.shape.blocks());
      each_pixel(piece, [&](int64_t at) { output.put(at, keep(activated(load(input + at)), lanes)); });
    });
  });
}

// target (+)= passed(sum of gradients, element)
template <typename T, typename Pass>
void pass_all_back(const ActivationBackward& a, const Pass& passed) {
  with_inputs<T>(a.gradients, a.gradient_count, [&](const auto& gradients) {
    const Output<T> target(a.input_gradient, a.shape, gradients.have(a.input_gradient));
    in_pieces(a.shape, [&](const Piece& piece) {
      each_pixel(piece, [&](int64_t at) { target.put_or_add(at, passed(gradients.sum(at), at), a.accumulate); });
    });
  });
}

template <typename T>
void backward(const ActivationBackward& a) {
  if (a.mask != nullptr) {
    return pass_all_back<T>(a, [&](Floats gradient, int64_t at) { return keep(gradient, load_bits(a.mask, at)); });
  }
  if (a.activation == UnitActivation::kNone) {
    return pass_all_back<T>(a, [](Floats gradient, int64_t) { return gradient; });
  }
  const T* const input = static_cast<const T*>(a.input);
  with_activation(a.activation, [&](auto kind) {
    const ActivationTo<kind.kValue, T> activation;
    pass_all_back<T>(a, [&](Floats gradient, int64_t at) { return activation.pass_back(gradient, load(input + at)); });
  });
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(sum_forward, SumForward, sum)
TRAINYARD_KERNEL_OF_TYPES(activation_forward, ActivationForward, forward)
TRAINYARD_KERNEL_OF_TYPES(activation_backward, ActivationBackward, backward)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
