// The loss of a training: what a run is asked for, and its flags.
#pragma once

namespace trainyard::core {
class FlagTable;
class FlagValues;
}  // namespace trainyard::core
namespace trainyard::frontends {

struct LossOptions {
  double label_smoothing = 0;  // part of the target that is spread evenly over all classes
};

// Declares them, and --loss_type_to_report, which DisplayOptions has.
void declare_loss_flags(core::FlagTable& table);
[[nodiscard]] LossOptions read_loss_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
