// Layer-wise decay of the learning rate: layers learn the more slowly the closer they are to the input (Clark, Luong,
// Le and Manning, "ELECTRA", 2020; Bao, Dong, Piao and Wei, "BEiT", 2022). For the fine-tuning of pretrained networks.
#pragma once

#include <string>
#include <vector>

namespace trainyard::optim {

// Returns the factor of the learning rate of each parameter, decay^(n - 1 - i) for those of layer group i of n, from
// the input to the output, as timm's param_groups_layer_decay(). `names` are a model's parameters in the order in which
// it declares them. The groups are:
//
//   vision transformers  what is in front of the blocks; each block, the last one with the norm behind it; the head
//   ConvNeXt             the stem; each block, the first one of a stage with the downsampling in front of it; the head
//   ResNets              conv1 and bn1; each block; the head
//   all others           twelve parameters each; the layer that is declared last
[[nodiscard]] std::vector<double> layer_rate_factors(const std::vector<std::string>& names, double decay);

}  // namespace trainyard::optim
