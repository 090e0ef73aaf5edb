#include <utility>

#include "trainyard/frontends/callback_loop/callback_loop.h"

namespace trainyard::frontends::callback_loop {

CheckpointManager::CheckpointManager(std::string directory, std::shared_ptr<core::Stateful> ckpt, int64_t max_to_keep)
    : directory_(std::move(directory)), ckpt_(std::move(ckpt)), max_to_keep_(max_to_keep) {}

train::CheckpointInfo CheckpointManager::save(int64_t step) {
  if (directory_.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "there is no folder to save checkpoints in",
                                                          .where = "manager.save()",
                                                          .remedy = "give callback_loop::Options a ckpt_path"});
  }
  return train::CheckpointStore(directory_, max_to_keep_).save(step, {}, *ckpt_);
}

std::optional<train::CheckpointInfo> CheckpointManager::restore() {
  if (directory_.empty()) return std::nullopt;
  train::CheckpointStore store(directory_, max_to_keep_);
  return train::resume_newest_checkpoint(store, nullptr, *ckpt_);
}

std::optional<train::CheckpointInfo> CheckpointManager::latest() const {
  if (directory_.empty()) return std::nullopt;
  return train::CheckpointStore(directory_, max_to_keep_).latest();
}

}  // namespace trainyard::frontends::callback_loop
