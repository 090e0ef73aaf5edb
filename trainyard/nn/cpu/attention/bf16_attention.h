// Attention of maps in bfloat16 with products in bfloat16, on processors with AVX512_BF16: attention weights and their
// gradients are rounded before they are multiplied, sums and the softmax are float. Gives the same bits for any number
// of threads.
#pragma once

#include "trainyard/nn/cpu/simd/arguments.h"

namespace trainyard::nn::cpu::bf16_attention {

// Compute attention_forward() and attention_backward() of kernels.h, with OpenMP's threads; the dtype is kBfloat16.
void forward(const AttentionForward& a);
void backward(const AttentionBackward& a);

}  // namespace trainyard::nn::cpu::bf16_attention
