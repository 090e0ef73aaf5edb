#include "trainyard/frontends/model/shared_model.h"

#include "trainyard/core/base/scoped_state.h"
#include "trainyard/train/checkpoint/shared_checkpoint.h"

namespace trainyard::frontends {

std::shared_ptr<const OpenedModel> share_opened_model(parallel::ProcessGroup& ranks,
                                                      const std::function<std::shared_ptr<const OpenedModel>()>& open) {
  std::shared_ptr<const OpenedModel> own;
  train::OpenedCheckpoint shared = train::open_shared(ranks, [&]() -> train::OpenedCheckpoint {
    own = open();
    if (own == nullptr) return {};
    return {.info = own->checkpoint,
            .identity = own->identity,
            .reader = std::make_unique<core::ScopedReader>(*own->reader, "")};
  });
  if (ranks.rank() == 0 || shared.reader == nullptr) return own;
  return std::make_shared<OpenedModel>(opened_model(std::move(shared)));
}

}  // namespace trainyard::frontends
