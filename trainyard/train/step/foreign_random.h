// Seeds, saves and loads ATen's default generator on the CPU, from which custom layers draw. The whole process shares
// it.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

bool has_foreign_modules(const nn::Graph& graph);

void seed_aten_random(uint64_t seed);
at::Tensor aten_random_state();
void set_aten_random_state(const at::Tensor& state);

}  // namespace trainyard::train
