#include "trainyard/train/loop/callback.h"

#include "trainyard/core/base/registry.h"

namespace trainyard::train {

std::string_view event_name(Event event) {
  switch (event) {
    case Event::kSetup:
      return "setup";
    case Event::kBeforeTrain:
      return "before_train";
    case Event::kBeforeEpoch:
      return "before_epoch";
    case Event::kBeforeStep:
      return "before_step";
    case Event::kAfterStep:
      return "after_step";
    case Event::kAfterEpoch:
      return "after_epoch";
    case Event::kTriggerEpoch:
      return "trigger_epoch";
    case Event::kAfterTrain:
      return "after_train";
  }
  return "unknown";
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
