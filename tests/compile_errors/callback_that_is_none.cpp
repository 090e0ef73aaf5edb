// error: static assertion failed: Trainer::add\(\) takes a std::shared_ptr to a class that derives publicly from
// train::Callback
#include <memory>
#include <string>

#include "trainyard/train/loop/trainer.h"

namespace callback_that_is_none {

namespace train = trainyard::train;

#ifdef MISTAKE
class Report {
 public:
  std::string name() const { return "report"; }
};
#else
class Report : public train::Callback {
 public:
  std::string name() const override { return "report"; }
};
#endif

void run(train::Trainer& trainer) {
  trainer.add(std::make_shared<Report>());
}

}  // namespace callback_that_is_none
