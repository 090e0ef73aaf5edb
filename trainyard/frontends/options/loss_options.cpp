#include "trainyard/frontends/options/loss_options.h"

#include "trainyard/core/flags/option_flags.h"

namespace trainyard::frontends {
namespace {

core::OptionFlags<LossOptions> make_loss_flags() {
  using L = LossOptions;
  core::OptionFlags<L> flags("Loss");
  flags.choice("loss_type_to_report", &L::loss_type_to_report, {"base_loss", "total_loss"},
               "total_loss holds the weight decay term");
  flags.add("label_smoothing", &L::label_smoothing, "part of the target that is spread evenly over all classes")
      .bounds(0)
      .below(1);
  return flags;
}

}  // namespace

void declare_loss_flags(core::FlagTable& table) {
  core::flags_of<make_loss_flags>().declare(table);
}

LossOptions read_loss_options(const core::FlagValues& values) {
  return core::flags_of<make_loss_flags>().read(values);
}

}  // namespace trainyard::frontends
