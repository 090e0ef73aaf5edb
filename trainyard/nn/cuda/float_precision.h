// Whether float products and convolutions may use TF32: a setting of the process, as LibTorch's is. Off until somebody
// allows it, whatever LibTorch starts with.
#pragma once

namespace trainyard::nn::cuda {

void allow_tf32(bool allowed);
// Makes LibTorch obey; called by whoever is about to compute.
void apply_float_precision();

}  // namespace trainyard::nn::cuda
