// Reports an evaluation's accuracy by class, as a table and as a file (docs/formats/class_accuracy.md).
#pragma once

#include <string>
#include <vector>

#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::frontends {

// Returns lines of name, accuracy and counts: of all classes with samples if there are up to 20, else of the five worst
// and the five best. `names` are by output; an output without a name is shown by its number. Each line ends with a line
// break.
std::string class_accuracy_table(const std::vector<train::ClassCount>& classes, const std::vector<std::string>& names);

// Returns one JSON object: the checkpoint, the overall accuracy, and for each class output, name, right and total.
std::string class_accuracy_json(const train::Evaluation& evaluation, const std::vector<std::string>& names,
                                const train::CheckpointInfo& checkpoint);

}  // namespace trainyard::frontends
