#include "trainyard/train/loop/callback.h"

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::train {

std::string_view event_name(Event event) {
  return core::enum_name<Event::kAfterTrain>(event, {"setup", "before_train", "before_epoch", "before_step",
                                                     "after_step", "after_epoch", "trigger_epoch", "after_train"});
}

at::Tensor ReplicaView::gradient(std::string_view parameter) const {
  const auto id = parameters->find(parameter);
  if (!id) {
    std::vector<std::string> names;
    for (const nn::Segment& segment : parameters->segments()) names.push_back(segment.spec.name);
    throw core::unknown_name("parameter", parameter, names);
  }
  const at::Tensor reduced = parameters->gradient(*id);
  return inverse_loss_scale.defined() ? reduced.mul(inverse_loss_scale.to(reduced.scalar_type())) : reduced;
}

}  // namespace trainyard::train
