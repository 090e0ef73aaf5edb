// The flags of TransformOptions: how images become input. recipes/image_options.h reads them.
#pragma once

#include <string>

#include "trainyard/core/flags/flags.h"

namespace trainyard::data {

// Of training and evaluation.
void declare_image_flags(core::FlagTable& table);
// Those of evaluation alone. `otherwise`: where a value that is not given comes from, for --help.
void declare_evaluation_image_flags(core::FlagTable& table, const std::string& otherwise);

}  // namespace trainyard::data
