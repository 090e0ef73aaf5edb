// Converts any exception to core::Error, so that callers can add where it happened.
#pragma once

#include <exception>

#include "trainyard/core/base/error.h"

namespace trainyard::train {

// Converts `exception`: a core::Error is returned unchanged, std::bad_alloc as kNoSpace, LibTorch's errors without
// their stack traces and all others as kInternal.
core::Error as_error(const std::exception_ptr& exception);

}  // namespace trainyard::train
