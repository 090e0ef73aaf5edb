#include "trainyard/recipes/benchmark_flags.h"

#include "trainyard/core/core_flags.h"
#include "trainyard/data/flags.h"
#include "trainyard/models/flags.h"
#include "trainyard/nn/flags.h"
#include "trainyard/optim/flags.h"
#include "trainyard/parallel/flags.h"
#include "trainyard/train/flags.h"

namespace trainyard::recipes {

const core::FlagTable& benchmark_flags() {
  // In the order of --help: what every run needs first.
  static const core::FlagTable joined = [] {
    core::FlagTable table;
    models::declare_flags(table);
    data::declare_input_flags(table);
    train::declare_flags(table);
    optim::declare_flags(table);
    nn::declare_flags(table);
    parallel::declare_flags(table);
    core::declare_flags(table);
    return table;
  }();
  return joined;
}

}  // namespace trainyard::recipes
