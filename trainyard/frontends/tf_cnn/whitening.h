// --whiten_images: a first convolution that whitens patches of training images.
#pragma once

#include <functional>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::frontends {

// Returns what sets the first convolution's weight by --whiten_images, from the images that this process reads for it;
// empty where the run continues from a checkpoint, or does not ask for it. Throws kInvalidArgument for a model whose
// first convolution cannot whiten, and for runs without training images of their own, or with initial weights.
[[nodiscard]] std::function<void(nn::ParameterSet&)> make_whitening(const PreparedRun& run);

}  // namespace trainyard::frontends
