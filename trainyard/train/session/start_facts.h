// Collects the facts that the processes of a run compare before their first step
// (parallel/process_group/start_agreement.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/parallel/process_group/start_agreement.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower_trainer.h"

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

// Adds what changes the numbers of a training: devices of a process, micro-steps, precision, what is done with numbers
// that are not finite, hyperparameters, and the learning rates at some of its first `steps` steps. All else of an
// optimizer is compared by the variable update where each rank has one, and by servers where they hold the values. Call
// it before the first step.
void add_trainer_facts(const TowerTrainer& trainer, int64_t steps, StartFacts& facts);

// Adds the teacher of a distillation: its layers, and a digest of its values. The paths to it may differ.
void add_teacher_facts(const Teacher& teacher, StartFacts& facts);

// Adds each node of the graph, each parameter and buffer with its shape.
void add_graph_facts(const nn::Graph& graph, StartFacts& facts);

}  // namespace trainyard::train
