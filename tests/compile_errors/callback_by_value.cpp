// error: static assertion failed: Trainer::add\(\) takes a std::shared_ptr .* std::make_shared<MyCallback>\(\)
#include <memory>
#include <string>

#include "trainyard/train/loop/trainer.h"

namespace callback_by_value {

namespace train = trainyard::train;

class Report : public train::Callback {
 public:
  std::string name() const override { return "report"; }
};

void run(train::Trainer& trainer) {
#ifdef MISTAKE
  trainer.add(Report());
#else
  trainer.add(std::make_shared<Report>());
#endif
}

}  // namespace callback_by_value
