// The models that come with the library, by name.
#pragma once

#include "trainyard/models/registry/model_registry.h"  // IWYU pragma: export
