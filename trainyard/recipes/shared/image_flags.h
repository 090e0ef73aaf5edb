// Reads the flags of images, which data/image_flags.h declares.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/recipes/shared/image_options.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// Of data::declare_image_flags. Throws kInvalidArgument for a list of something else than the numbers that it needs.
ImageOptions read_image_options(const core::FlagValues& values);

// Of data::declare_evaluation_image_flags. Throws as read_image_options().
EvaluationImageOptions read_evaluation_options(const core::FlagValues& values);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
