// Sets whether float products and convolutions may use TF32, for the whole process, as in LibTorch. Off by default,
// whatever LibTorch's default is.
#pragma once

namespace trainyard::nn::cuda {

void allow_tf32(bool allowed);
// Applies the setting to LibTorch. Call it before computing.
void apply_float_precision();

}  // namespace trainyard::nn::cuda
