// What a benchmark's checkpoint holds beside the trainer: the names of the labels, so that predictions can be read.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/stateful.h"
#include "trainyard/train/trainer.h"

namespace trainyard::recipes {

class BenchmarkState : public core::Stateful {
 public:
  BenchmarkState(train::Trainer& trainer, std::vector<std::string> label_names)
      : trainer_(&trainer), label_names_(std::move(label_names)) {}

  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  train::Trainer* trainer_;
  std::vector<std::string> label_names_;
};

// Those of a checkpoint; empty where it has none.
std::vector<std::string> load_label_names(const core::StateReader& reader);

}  // namespace trainyard::recipes
