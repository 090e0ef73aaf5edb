#include "trainyard/train/checkpoint/checkpoint_listing.h"

#include <algorithm>
#include <utility>

#include "trainyard/train/checkpoint/checkpoint_damage.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"

namespace trainyard::train {
namespace {

// One look; false when something went away meanwhile.
bool list_once(const std::string& directory, core::FileSystem& files, CheckpointListing& listing) {
  listing = {};
  bool steady = true;
  const std::vector<std::string> names = files.list(directory);
  for (const std::string& name : names) {
    const std::optional<CheckpointName> parsed = parse_checkpoint_name(name);
    if (!parsed || !parsed->step) continue;
    const bool replaced = parsed->purpose == CheckpointPurpose::kReplaced;
    if (!replaced && parsed->purpose != CheckpointPurpose::kNone) continue;
    // A crash while a checkpoint was replaced by another one of its step may leave it under this name only.
    if (replaced && std::binary_search(names.begin(), names.end(), parsed->plain)) continue;
    CheckpointInfo info{.path = core::join_path(directory, name), .global_step = *parsed->step};
    const std::optional<core::Error> error = checkpoint_problem(info.path, files);
    if (!error) {
      listing.intact.push_back(std::move(info));
    } else if (error->code() == core::ErrorCode::kNotFound) {
      steady = false;
    } else {
      listing.damaged.push_back({std::move(info), *error});
    }
  }
  return steady;
}

}  // namespace

const DamagedCheckpoint* CheckpointListing::newest_damage() const {
  if (damaged.empty()) return nullptr;
  const bool passed = !intact.empty() && intact.back().global_step > damaged.back().info.global_step;
  return passed ? nullptr : &damaged.back();
}

CheckpointListing list_checkpoints(const std::string& directory, core::FileSystem& files) {
  CheckpointListing listing;
  if (!files.exists(directory)) return listing;
  for (int look = 0; look < kMostLooks && !list_once(directory, files, listing); ++look) continue;
  std::stable_sort(listing.intact.begin(), listing.intact.end(),
                   [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.global_step < b.global_step; });
  std::stable_sort(listing.damaged.begin(), listing.damaged.end(),
                   [](const auto& a, const auto& b) { return a.info.global_step < b.info.global_step; });
  return listing;
}

}  // namespace trainyard::train
