// What must be the same on all ranks before they take a step together: flags, model, program and data.
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

// Collective: throws kInvalidArgument where the facts of a rank are not those of rank 0, in their order. All ranks
// throw the same error. It names the lowest rank that differs, the first item in which it does, and both values.
//
// Where all agree, which is the rule, ranks exchange a checksum each and nothing more.
void require_same_facts(ProcessGroup& ranks, const std::vector<StartFact>& facts);

}  // namespace trainyard::parallel
