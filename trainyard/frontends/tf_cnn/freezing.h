// Parameters of a run that do not train.
#pragma once

#include <string>
#include <vector>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

// Returns the names of the parameters of the layers that give the graph's outputs: the classifier, and auxiliary ones,
// or all layers that predict a detector's boxes and scores.
[[nodiscard]] std::vector<std::string> head_parameters(const nn::Graph& graph);

// Throws kNotFound for a pattern of the run's options that no parameter matches, kUnsupported where the devices cannot
// freeze, and kInvalidArgument where all parameters are frozen from the first step to the last, or in the first step of
// a run that replaces another. Leaves all parameters to train. Call it before anything of an earlier run is touched.
void check_freezing(const PreparedRun& run, train::TowerTrainer& trainer);

// Freezes what the run's options say, from the trainer's next step on, and adds the callback that freezes and thaws at
// later epochs. Call it once the run has been resumed. Logs what is frozen, and warns where the run that it continues
// had frozen other parameters. Throws kNotFound for a pattern that no parameter matches.
void freeze_parameters(const PreparedRun& run, train::TowerTrainer& trainer);

}  // namespace trainyard::frontends
