// Executes the plans of all processes in simulated time: the steps, lanes, windows and conditions of plan/plan.h as
// PlanRun carries them out, over links of an alpha-beta model. Reductions and copies take no time, and a message needs
// no receiver before it is sent.
#pragma once

#include <vector>

#include "trainyard/parallel/collectives/plan/plan.h"
#include "trainyard/parallel/simulation/link_model.h"

namespace trainyard::parallel {

// Returns the seconds from the moment in which all processes call a collective until the last of them is done.
// plans[p]: the plan of process p over tensors of `type`. The processes first agree on the call, with empty messages
// along the chain of processes and back (collectives/call_agreement.h). Throws kInternal where plans do not fit each
// other, so that one of them never ends.
double plan_seconds(const std::vector<CollectivePlan>& plans, at::ScalarType type, const LinkModel& link);

}  // namespace trainyard::parallel
