#include "trainyard/nn/cpu/convolution/onednn/packed_weights.h"

#include <ATen/ops/empty.h>

namespace trainyard::nn::cpu {

void PackedWeights::allocate() {
  memory_ = at::empty({bytes_}, at::kByte);
}

}  // namespace trainyard::nn::cpu
