// The loss of a training: what a run is asked for, and its flags.
#pragma once

#include <string>

namespace trainyard::core {
class FlagTable;
class FlagValues;
}  // namespace trainyard::core
namespace trainyard::frontends {

struct LossOptions {
  std::string loss_type_to_report = "total_loss";  // in lines and summaries; "base_loss": without the weight decay
  double label_smoothing = 0;                      // part of the target that is spread evenly over all classes
};

void declare_loss_flags(core::FlagTable& table);
[[nodiscard]] LossOptions read_loss_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
