// The names of directories that a CheckpointStore makes: only directories with such names are ever renamed or removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard::train {

// The name of the best checkpoint by validation.
inline constexpr std::string_view kBestCheckpoint = "best";

// Why a directory has a temporary name instead of a checkpoint's.
enum class CheckpointPurpose {
  kNone,       // it has the checkpoint's name
  kTemporary,  // it is being written, or removed
  kReplaced,   // a complete one that is being replaced by another one of the same name
  kDamaged,    // set aside for inspection; never removed
};

// "model.ckpt-<step>" or "best", or one of these followed by ".<purpose>-<process>-<number>".
struct CheckpointName {
  std::string_view plain;       // without the purpose
  std::optional<int64_t> step;  // nullopt: the best one
  CheckpointPurpose purpose = CheckpointPurpose::kNone;
};

// Parses such a name. Returns nothing for any other name.
std::optional<CheckpointName> parse_checkpoint_name(std::string_view text);

// Returns "model.ckpt-1200".
std::string checkpoint_name(int64_t step);

// Returns a path in the same folder as `path` that no other writer uses: "model.ckpt-1200.tmp-<process>-<number>".
std::string checkpoint_path_for(CheckpointPurpose purpose, std::string_view path);

}  // namespace trainyard::train
