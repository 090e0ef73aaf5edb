// The flags of TransformOptions: how images become input. frontends/options/image_options.h reads them.
#pragma once

#include <string>

#include "trainyard/core/flags/flags.h"

namespace trainyard::data {

// Declares the flags of training and evaluation.
void declare_image_flags(core::FlagTable& table);
// Declares the flags of evaluation alone, for a command on a trained model, which provides the defaults.
void declare_trained_image_flags(core::FlagTable& table);

}  // namespace trainyard::data
