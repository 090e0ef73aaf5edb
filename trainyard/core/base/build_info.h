// Describes what this library was built from and with. `trainyard doctor` and the summary of a run print it.
#pragma once

#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

struct LibraryVersion {
  std::string_view name{};
  std::string_view version{};  // version of the headers that this library was compiled against
};

// A part that can be left out when building.
struct OptionalPart {
  std::string_view name{};
  bool built_in = false;
  std::string_view how_to_get{};  // what a user installs or configures to get the part
};

// All texts live as long as the program.
struct BuildInfo {
  std::string_view version{};          // "0.1.0"
  std::string_view git_revision{};     // "4f2a91c", "4f2a91c+" with uncommitted changes, "unknown" outside of a clone
  std::string_view compiler{};         // "GNU 12.2.0"
  std::string_view build_type{};       // "Release" or "Dev"
  std::string_view instruction_set{};  // -march of all code but the kernels chosen at run time: "x86-64-v3"
  std::string_view sanitizers{};       // "" when built without sanitizers
  std::vector<LibraryVersion> libraries{};
  std::vector<OptionalPart> optional_parts{};
};

// Returns what this library was built from and with. Any thread may call it.
const BuildInfo& build_info();

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
