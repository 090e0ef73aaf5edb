// The teacher of a distillation, whose outputs a model learns in addition to the labels (train/step/graph_tower.h):
// the requested options, and their flags.
#pragma once

#include <string>

#include "trainyard/core/flags/option_flags.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::frontends {

struct TeacherOptions {
  std::string from{};   // a file of weights, a checkpoint or a train directory; empty: no teacher
  std::string model{};  // empty: from the metadata of `from`
  train::DistillationOptions loss{};
};

// Makes the flags, for core::flags_of(). Reading throws kInvalidArgument for flags without a teacher, and for numbers
// that DistillationOptions refuse.
[[nodiscard]] core::OptionFlags<TeacherOptions> teacher_flags();

}  // namespace trainyard::frontends
