// Checks of the options of all sources.
#pragma once

#include <cstdint>
#include <string_view>

namespace trainyard::data {

// Throws kInvalidArgument, "`what` of a source cannot be used", where `actual` is less than `least`.
void require_at_least(std::string_view what, int64_t least, int64_t actual);

}  // namespace trainyard::data
