#include "trainyard/core/base/pattern.h"

#include <fnmatch.h>

namespace trainyard::core {

bool matches_pattern(const std::string& name, const std::string& pattern) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

}  // namespace trainyard::core
