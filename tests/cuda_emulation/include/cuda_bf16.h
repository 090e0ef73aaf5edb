#pragma once

#include <c10/util/BFloat16.h>

using __nv_bfloat16 = c10::BFloat16;

inline float __bfloat162float(__nv_bfloat16 value) {
  return static_cast<float>(value);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {value};
}
