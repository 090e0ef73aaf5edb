// The flags of images as data::TransformOptions, and what of them a checkpoint remembers: a model must be given its
// images as it was trained.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/data/augment/transform.h"

namespace trainyard::recipes {

// Of data::declare_image_flags. The preprocessor's values, under those that are given. Throws kInvalidArgument: a
// value out of range, a flag that the data set's transform has no use for, two flags that contradict each other.
data::TransformOptions read_image_options(const core::FlagValues& values, const std::string& dataset,
                                          int64_t image_size);

// Of data::declare_evaluation_image_flags: what is given stands over `options`.
void read_evaluation_options(const core::FlagValues& values, data::TransformOptions& options);

// The part that evaluation depends on.
void save_evaluation_options(const data::TransformOptions& options, core::StateWriter& writer);
bool same_evaluation(const data::TransformOptions& a, const data::TransformOptions& b);
// Leaves `options` as they are where an old checkpoint has none.
void load_evaluation_options(const core::StateReader& reader, data::TransformOptions& options);

}  // namespace trainyard::recipes
