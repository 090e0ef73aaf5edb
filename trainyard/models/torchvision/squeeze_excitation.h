// torchvision.ops.SqueezeExcitation: the image times a factor per channel, which two 1x1 convolutions ("fc1", "fc2")
// compute from the channels' means. Hu, Shen, Sun, "Squeeze-and-excitation networks", 2018.
#pragma once

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision {

struct SqueezeExcitation {
  int64_t squeezed = 0;                // channels between the two convolutions
  Function inner = Function::kRelu;    // after the first
  Function gate = Function::kSigmoid;  // after the second
  bool default_bias = false;           // biases are initialized as torch.nn.Conv2d's; otherwise with zeros
};

Value append(nn::GraphBuilder& b, const std::string& prefix, Value x, const SqueezeExcitation& op);

}  // namespace trainyard::models::torchvision
