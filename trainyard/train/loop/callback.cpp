#include "trainyard/train/loop/callback.h"

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
    case Event::kAfterTrain:
      return "after_train";
  }
  return "unknown";
}

}  // namespace trainyard::train
