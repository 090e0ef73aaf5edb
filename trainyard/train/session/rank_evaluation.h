// Evaluates on all ranks of a run: each rank evaluates its part of the samples, and all get the same result.
#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

// In all, null `ranks` means that this process is alone.

// Begins the evaluations of a run. The first one of each source opens its data and makes its kernels as a first step
// does: the start's deadline counts for it (ProcessGroup::progress()), and the step's for those that follow. Sources
// must outlive this.
class RankEvaluations {
 public:
  // Collective: reports that this process evaluates `source`, and copies rank 0's batch norm statistics to all ranks.
  // Null: the evaluation takes its samples from elsewhere.
  void begin(parallel::ProcessGroup* ranks, const data::BatchSource* source, int64_t global_step,
             nn::ParameterSet& parameters);

 private:
  std::set<const data::BatchSource*> evaluated_;
};

// Collective: returns the evaluation over the samples of all ranks. `own` evaluates this rank's part, which may be
// empty. With `shared` false each rank has evaluated all samples, and the result is its own. Throws kCancelled on all
// ranks where `own` throws it on one, and what else `own` throws.
[[nodiscard]] Evaluation evaluate_over_ranks(parallel::ProcessGroup* ranks, const std::function<Evaluation()>& own,
                                             bool shared = true);

// Returns whether ranks can share out the batches of this source: whether it knows how many it has.
[[nodiscard]] bool shares_batches(parallel::ProcessGroup* ranks, const data::BatchSource& source);
// Returns this rank's evaluation of its part of `source`, which ends and for which shares_batches() holds: neighbouring
// batches, in rank order, as many for each rank as for the others or one more, and on the last rank a shorter batch at
// the end, too. It reads nothing else, though a source may make some batches ahead. Not collective.
[[nodiscard]] Evaluation evaluate_own_batches(const parallel::ProcessGroup& ranks, Evaluator& evaluator,
                                              data::BatchSource& source);

}  // namespace trainyard::train
