// Saves and restores the state of the callback loop. The loop restores the newest checkpoint when it starts and saves
// none: callbacks do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/train/checkpoint/checkpoint.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::callback_loop {

class CheckpointManager {
 public:
  // Keeps the newest `max_to_keep` checkpoints of `ckpt` in `directory`. Empty: restores nothing, and saving is an
  // error.
  CheckpointManager(std::string directory, std::shared_ptr<core::Stateful> ckpt, int64_t max_to_keep = 50);

  // Saves as the checkpoint of this step, durably. Throws as train::CheckpointStore::save() does, and kInvalidArgument
  // without a directory.
  train::CheckpointInfo save(int64_t step);
  // Loads the newest checkpoint and returns it, or returns nothing when there is none. Throws as
  // train::load_checkpoint() does.
  std::optional<train::CheckpointInfo> restore();
  // Returns the newest checkpoint.
  [[nodiscard]] std::optional<train::CheckpointInfo> latest() const;

  const std::string& directory() const { return directory_; }
  const std::shared_ptr<core::Stateful>& ckpt() const { return ckpt_; }

 private:
  std::string directory_;
  std::shared_ptr<core::Stateful> ckpt_;
  int64_t max_to_keep_;
};

}  // namespace trainyard::frontends::callback_loop
TRAINYARD_EXPORT_END
