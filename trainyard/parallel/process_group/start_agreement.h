// Checks what must be the same on all ranks before the first step: flags, model, program and data.
#pragma once

#include <string>
#include <vector>

#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// One of them: {"--batch_size", "64"}, {"parameter conv1.weight", "[64, 3, 7, 7]"}.
struct StartFact {
  std::string item, value;
  bool operator==(const StartFact&) const = default;
};

// Collective: throws kInvalidArgument when the facts of a rank differ from those of rank 0, in order. All ranks throw
// the same error, which names the lowest rank that differs, its first fact that differs, and both values.
//
// When all agree, which is the rule, ranks exchange only a checksum each, and else the facts of the two ranks that the
// error names.
void require_same_facts(ProcessGroup& ranks, const std::vector<StartFact>& facts);

}  // namespace trainyard::parallel
