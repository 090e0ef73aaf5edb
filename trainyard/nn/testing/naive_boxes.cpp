#include <algorithm>
#include <cmath>

#include "trainyard/nn/testing/naive_call.h"

namespace trainyard::nn::naive {

Values run(const L2Norm& op, const Call& call) {
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    double sum = 0;
    for (int64_t other = 0; other < call.x().shape[0]; ++other) {
      sum += call.pixel(n, other, h, w) * call.pixel(n, other, h, w);
    }
    return call.pixel(n, c, h, w) / std::max(std::sqrt(sum), op.epsilon) * call.parameters[0][static_cast<size_t>(c)];
  });
}

Values run(const BoxRows& op, const Call& call) {
  Values y = call.result();
  const int64_t columns = op.coordinates + op.classes;
  for (int64_t n = 0; n < y.batch; ++n) {
    int64_t first = n * y.shape[0];
    for (size_t pair = 0; pair < call.inputs.size(); pair += 2) {
      const int64_t height = call.inputs[pair]->shape[1], width = call.inputs[pair]->shape[2];
      const int64_t boxes = call.inputs[pair]->shape[0] / op.coordinates;
      for (int64_t a = 0; a < boxes; ++a) {
        for (int64_t h = 0; h < height; ++h) {
          for (int64_t w = 0; w < width; ++w) {
            const int64_t row = first + (op.order == BoxRows::Order::kByBox ? (a * height + h) * width + w
                                                                            : (h * width + w) * boxes + a);
            for (int64_t k = 0; k < columns; ++k) {
              const bool score = k >= op.coordinates;
              const Values& x = *call.inputs[pair + (score ? 1 : 0)];
              const int64_t channel = score ? a * op.classes + k - op.coordinates : a * op.coordinates + k;
              y.data[static_cast<size_t>(row * columns + k)] =
                  x.data[static_cast<size_t>(((n * x.shape[0] + channel) * height + h) * width + w)];
            }
          }
        }
      }
      first += boxes * height * width;
    }
  }
  return y;
}

}  // namespace trainyard::nn::naive
