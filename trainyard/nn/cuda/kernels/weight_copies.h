// Plans the kernels' copies of weights: one flat block, each copy in [out, height, width, in], made by one launch.
#pragma once

#include <cstdint>
#include <vector>

namespace trainyard::nn::cuda {

// [outer, inner, pixels] float from element `source` of the parameters on. A convolution's weight is [out, in / groups,
// height * width], a linear layer's [out, in, 1], a bias [1, out, 1].
struct WeightSource {
  int64_t source = 0;
  int64_t outer = 0, inner = 0, pixels = 0;
};

// The elements that one block of a GPU copies: element i of the destination is element (outer_index * inner +
// inner_index) * pixels + pixel of the source, where i = (outer_index * pixels + pixel) * inner + inner_index.
struct WeightCopy {
  int64_t source = 0, destination = 0;  // first elements
  int64_t outer = 0, inner = 0, pixels = 0;
  int64_t begin = 0, end = 0;  // of i
};

struct WeightPlan {
  std::vector<int64_t> destinations;  // of each source: first element, a multiple of kWeightAlignment
  int64_t total = 0;                  // elements
  std::vector<WeightCopy> copies;     // of at most kWeightPart elements each
};
WeightPlan plan_weights(const std::vector<WeightSource>& sources);

inline constexpr int64_t kWeightAlignment = 64;  // elements: 128 bytes of 16 bits
inline constexpr int64_t kWeightPart = 8192;     // elements that one block copies

}  // namespace trainyard::nn::cuda
