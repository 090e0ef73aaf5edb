#include "trainyard/data/sources/source_options.h"

#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {

void require_at_least(std::string_view what, int64_t least, int64_t actual) {
  if (actual >= least) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("{} of a source cannot be used", what),
                                                        .expected = fmt::format("at least {}", least),
                                                        .actual = std::to_string(actual)});
}

}  // namespace trainyard::data
