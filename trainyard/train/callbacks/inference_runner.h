// Measures the model on any number of validation sets, each with its own metrics.
//
//   auto evaluator = std::make_shared<Evaluator>(EvaluatorOptions{.graph = graph}, trainer.parameters());
//   trainer.add(std::make_shared<InferenceRunner>(
//       evaluator, std::vector<InferenceSet>{{"val", source, {std::make_shared<TopKAccuracy>(1)}}}));
//
// writes "val/top_1_accuracy" to the monitors after each epoch, or at the times of a PeriodicTrigger.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/evaluation/metric.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct InferenceSet {
  std::string name{};  // the phase of its values, "val"
  std::shared_ptr<data::BatchSource> source{};
  std::vector<std::shared_ptr<Metric>> metrics{};
  int64_t batches = 0;  // 0: until the source ends
};

struct InferenceOptions {
  // Set it when each rank has a part of the sets; all ranks then need the callback and get the same results.
  core::Communicator* ranks = nullptr;
  std::function<void()> before{};        // called before the sets: waits for the trainer's device
  std::function<double()> wall_clock{};  // seconds since the Unix epoch; default: the system's clock
};

// Each set starts with the source's first sample. A set whose evaluation was stopped (kCancelled) writes nothing.
class InferenceRunner : public Callback {
 public:
  // Throws kInvalidArgument for no sets, a set without source or metrics, a name that is empty, "train" or used twice,
  // and two results of the same name in a set.
  InferenceRunner(std::shared_ptr<Evaluator> evaluator, std::vector<InferenceSet> sets, InferenceOptions options = {});

  std::string name() const override { return name_; }  // "inference_val": from the names of its sets
  void trigger(Trainer& trainer) override;

 private:
  std::shared_ptr<Evaluator> evaluator_;
  std::vector<InferenceSet> sets_;
  InferenceOptions options_;
  std::string name_ = "inference";
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
