// The names of directories that a CheckpointStore makes: only what bears one of them is ever renamed or removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard::train {

// The best checkpoint by validation, beside those of steps.
inline constexpr std::string_view kBestCheckpoint = "best";

// Why a directory does not (yet, or any more) bear the name of a checkpoint.
enum class CheckpointPurpose {
  kNone,       // it does
  kTemporary,  // it is being written, or removed
  kReplaced,   // a complete one that makes way for another one of the same name
  kDamaged,    // set aside, for people to look at; never removed
};

// "model.ckpt-<step>" or "best", or one of these with ".<purpose>-<process>-<number>" behind it.
struct CheckpointName {
  std::string_view plain;       // without the purpose
  std::optional<int64_t> step;  // none: the best one
  CheckpointPurpose purpose = CheckpointPurpose::kNone;
};

// Reads such a name. Returns nothing for any other name.
std::optional<CheckpointName> parse_checkpoint_name(std::string_view text);

// Returns "model.ckpt-1200".
std::string checkpoint_name(int64_t step);

// Returns the path of a directory without slashes at its end: "runs/a" for "runs/a//". A path of nothing but slashes
// stays.
std::string without_trailing_slashes(const std::string& path);

// Returns a path beside `path` that no other writer uses: "model.ckpt-1200.tmp-<process>-<number>".
std::string checkpoint_path_for(CheckpointPurpose purpose, std::string_view path);

}  // namespace trainyard::train
