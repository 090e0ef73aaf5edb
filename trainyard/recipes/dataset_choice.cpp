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

std::string guess_from(const std::string& directory) {
  for (const std::string_view name : kNames) {
    if (directory.find(name) != std::string::npos) return std::string(name);
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    "Could not identify name of dataset. Please specify with --data_name option.");
}

}  // namespace

std::string benchmark_dataset_name(const core::FlagValues& values) {
  const std::string directory = values.text("data_dir");
  std::string name = values.text("data_name");
  if (name.empty()) name = directory.empty() ? "imagenet" : guess_from(directory);
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
    auto sorted = kNames;
    std::sort(sorted.begin(), sorted.end());
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("Unknown dataset. Must be one of {}", fmt::join(sorted, ", ")));
  }
  if (name == "coco" || name == "librispeech") {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = fmt::format("data set {} is outside what this project covers for now", name),
                       .remedy = "use imagenet, cifar10 or shapes"});
  }
  return name;
}

}  // namespace trainyard::recipes
