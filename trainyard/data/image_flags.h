// The flags of TransformOptions: how images become input. recipes/image_options.h reads them.
#pragma once

#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Declares the flags of training and evaluation.
void declare_image_flags(core::FlagTable& table);
// Declares those of evaluation alone. `otherwise` says, for --help, where a value comes from that is not given.
void declare_evaluation_image_flags(core::FlagTable& table, const std::string& otherwise);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
