// Reads the flags of images, which data/image_flags.h declares.
#pragma once

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/image_options.h"

namespace trainyard::frontends {

// Reads the flags that data::declare_image_flags declares. Throws kInvalidArgument for a list that does not hold the
// numbers it needs.
ImageOptions read_image_options(const core::FlagValues& values);

// Reads the flags that data::declare_trained_image_flags declares. Throws as read_image_options().
EvaluationImageOptions read_evaluation_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
