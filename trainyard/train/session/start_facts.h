// Collects the facts that the processes of a run compare before their first step
// (parallel/process_group/start_agreement.h).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/parallel/process_group/start_agreement.h"

namespace trainyard::train {

using StartFacts = std::vector<parallel::StartFact>;

// Adds each flag as "--name", except for those that may differ between ranks (may_differ_by_rank()).
void add_flag_facts(const std::vector<std::pair<std::string, core::FlagValue>>& flags, StartFacts& facts);
// Returns whether a flag is about paths on a machine, output of a process, or speed, and so does not change the numbers
// that ranks share.
bool may_differ_by_rank(std::string_view flag);

// Adds the program: version and revision, and the instruction set that its kernels use. Ranks with different
// instructions would round their updates differently, and their copies of the variables would diverge.
void add_program_facts(StartFacts& facts);

// Adds the classes of the data, by number.
void add_class_facts(const std::vector<std::string>& names, StartFacts& facts);

// Adds each node of the graph, each parameter and buffer with its shape.
void add_graph_facts(const nn::Graph& graph, StartFacts& facts);

}  // namespace trainyard::train
