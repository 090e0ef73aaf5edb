// Any exception as one of the library's own kind, so that a place can be put in front of it on the way up.
#pragma once

#include <exception>

#include "trainyard/core/base/error.h"

namespace trainyard::train {

// Returns what `exception` holds: a core::Error as it is, std::bad_alloc as kNoSpace, LibTorch's errors without their
// stack traces and all others as kInternal.
core::Error as_error(const std::exception_ptr& exception);

}  // namespace trainyard::train
