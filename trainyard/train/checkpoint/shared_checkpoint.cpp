#include "trainyard/train/checkpoint/shared_checkpoint.h"

#include <string>
#include <string_view>
#include <utility>

#include "trainyard/core/sockets/frame.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/parallel/process_group/state_broadcast.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"

namespace trainyard::train {
namespace {

// Empty: there is none.
std::string text_of_checkpoint(const CheckpointInfo& info, const CheckpointIdentity& identity) {
  return core::BodyWriter()
      .text(info.path)
      .number(info.global_step)
      .text(identity.model)
      .text(identity.dataset)
      .number(identity.num_classes)
      .take();
}

OpenedCheckpoint checkpoint_of_text(std::string_view text) {
  core::BodyReader body(text);
  OpenedCheckpoint opened;
  opened.info.path = body.text();
  opened.info.global_step = body.number();
  opened.identity.model = body.text();
  opened.identity.dataset = body.text();
  opened.identity.num_classes = body.number();
  return opened;
}

}  // namespace

OpenedCheckpoint open_shared(parallel::ProcessGroup& ranks, const std::function<OpenedCheckpoint()>& open) {
  OpenedCheckpoint opened;
  const std::string text = parallel::on_first(ranks, "the checkpoint to read", [&] {
    opened = open();
    return opened.reader == nullptr ? std::string() : text_of_checkpoint(opened.info, opened.identity);
  });
  if (text.empty()) return opened;
  std::unique_ptr<core::StateReader> copy = parallel::broadcast_state(ranks, opened.reader.get());
  if (ranks.rank() == 0) return opened;
  opened = checkpoint_of_text(text);
  opened.reader = std::move(copy);
  return opened;
}

std::optional<CheckpointInfo> load_shared(parallel::ProcessGroup& ranks, core::Stateful& state,
                                          const std::function<std::optional<CheckpointInfo>()>& load,
                                          core::FileSystem& files) {
  const OpenedCheckpoint opened = open_shared(ranks, [&]() -> OpenedCheckpoint {
    const std::optional<CheckpointInfo> loaded = load();
    if (!loaded) return {};
    // A reader of its own: what `load` has left unread was warned of.
    auto reader = std::make_unique<CheckpointReader>(loaded->path, files);
    const CheckpointIdentity identity = reader->manifest().identity;
    return {.info = *loaded, .identity = identity, .reader = std::move(reader)};
  });
  if (opened.reader == nullptr) return std::nullopt;
  parallel::together(ranks, "loading the checkpoint", [&] {
    if (ranks.rank() != 0) state.load(*opened.reader);
  });
  return opened.info;
}

}  // namespace trainyard::train
