// The arguments of magnitude.h's kernels. Follows the rules of arguments.h.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/kernels/feature_map.h"

namespace trainyard::nn::cpu {

// result = the largest absolute value; NaN where one is NaN.
struct LargestMagnitude {
  int64_t count = 0;
  DataType dtype = DataType::kFloat;
  const void* values = nullptr;
  float* result = nullptr;
};

// values: float [rows, columns]. result = the largest sum of a row's absolute values; NaN where a row has NaN.
struct LargestRowSum {
  int64_t rows = 0, columns = 0;
  const float* values = nullptr;
  float* result = nullptr;
};

}  // namespace trainyard::nn::cpu
