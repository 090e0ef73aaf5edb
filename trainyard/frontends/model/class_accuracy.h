// How right an evaluation was class by class: for people, and as a file (docs/formats/class_accuracy.md).
#pragma once

#include <string>
#include <vector>

#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::frontends {

// Returns lines of name, accuracy and counts: all classes that had samples where these are up to 20, else the five
// worst and the five best. `names` by output; an output without a name is its number. Each line ends with a break.
std::string class_accuracy_table(const std::vector<train::ClassCount>& classes, const std::vector<std::string>& names);

// Returns one JSON object: the checkpoint, the whole accuracy, and for each class output, name, right and total.
std::string class_accuracy_json(const train::Evaluation& evaluation, const std::vector<std::string>& names,
                                const train::CheckpointInfo& checkpoint);

}  // namespace trainyard::frontends
