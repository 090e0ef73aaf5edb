#include "trainyard/recipes/dataset_choice.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/error.h"

namespace trainyard::recipes {
namespace {

// In the order in which a path is searched for them.
constexpr std::array<std::string_view, 5> kNames = {"imagenet", "cifar10", "librispeech", "coco", "shapes"};

}  // namespace

std::string choose_dataset(const core::FlagValues& values) {
  const std::string directory = values.text("data_dir");
  std::string name = values.text("data_name");
  if (directory.empty() && name.empty()) return "imagenet";
  if (name.empty()) {
    const auto* found = std::find_if(kNames.begin(), kNames.end(), [&](std::string_view known) {
      return directory.find(known) != std::string::npos;
    });
    if (found == kNames.end()) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        "Could not identify name of dataset. Please specify with --data_name option.");
    }
    return std::string(*found);
  }
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
    auto sorted = kNames;
    std::sort(sorted.begin(), sorted.end());
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("Unknown dataset. Must be one of {}", fmt::join(sorted, ", ")));
  }
  return name;
}

}  // namespace trainyard::recipes
