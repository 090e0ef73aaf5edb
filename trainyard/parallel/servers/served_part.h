// What a parameter server keeps: values, slots, and a block of gradients for each worker, all of one part of the flat
// blocks; and the update of that part. It knows nothing of messages that come and go.
//
// The server declares all tensors, as a worker does, so that names, patterns and parts are the same everywhere; memory
// of the elements that it does not own is never touched, and so never taken from the system. Formulas that compute each
// element by itself can own any run of elements (optim::Optimizer::keep_part). The others, several optimizers and
// staged values need whole tensors: those of other servers are frozen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/step_state.h"
#include "trainyard/parallel/servers/server_options.h"
#include "trainyard/parallel/servers/wire.h"

namespace trainyard::parallel {

// Memory that holds zeros and takes none from the system before it is used.
class LazyBlock {
 public:
  // Throws kNoSpace.
  explicit LazyBlock(size_t bytes);
  LazyBlock(const LazyBlock&) = delete;
  LazyBlock& operator=(const LazyBlock&) = delete;
  ~LazyBlock();
  std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

// Returns the tensors of a set, as workers register them, in the order of their declaration.
std::vector<wire::Tensor> tensors_of(const nn::ParameterSet& set);
// Returns the counts of updates of an optimizer, float64 in host memory, in the order in which messages carry them: its
// own, then Lookahead's. Empty where it counts none.
std::vector<at::Tensor> counts_in(const optim::Optimizer& optimizer);

class ServedPart {
 public:
  using MakeOptimizers = std::vector<std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)>>;

  // Throws what the optimizers throw, kNoSpace, kInvalidArgument for other numbers of optimizers and for more bytes
  // than are allowed, kUnsupported for gradients that are clipped by their norm where there are several servers.
  ServedPart(const wire::RegisterRequest& registered, const ParameterServerOptions& options,
             const MakeOptimizers& make_optimizers);

  // Returns the name of the first tensor that differs from the registered ones; empty when none does.
  std::string difference(const wire::RegisterRequest& other) const;

  int64_t total() const { return set_.total(); }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  size_t width() const { return width_; }  // bytes of an element
  // Returns optimizer_settings() of all optimizers, as they were made.
  const std::string& settings() const { return settings_; }
  // Returns the number of slots of each optimizer.
  std::vector<uint64_t> slots() const;
  // Returns the names of an optimizer's hyperparameters, in the order in which a step carries their values.
  std::vector<std::string> hyperparameter_names(uint64_t optimizer) const;
  const std::string& tensor_name(uint64_t index) const { return tensors_.at(index).name; }
  // Returns element `begin` of a wire target; null when there is no such target or element.
  std::byte* elements(uint64_t target, uint64_t begin) const;
  // Returns the first element of the part in the block of a worker's gradients.
  std::byte* gradients(size_t worker) const { return blocks_.at(worker)->data(); }

  // The counts of updates of all optimizers, in the order of counts_in().
  std::vector<double> counts() const;
  void set_counts(const std::vector<double>& counts);  // throws kInvalidArgument for another number of them

  // Throws kInvalidArgument unless `request` has an optimizer, hyperparameters and frozen parameters that there are.
  void check(const wire::ApplyRequest& request) const;
  // Updates the part with the reduction of these workers' gradients, in their order. `settings` has the step's numbers,
  // `found_inf` says whether one of the workers found gradients that are not finite, and `followed` has the
  // hyperparameters and frozen parameters; null: they stay as they are.
  void update(const std::vector<size_t>& workers, const wire::ApplyRequest& settings, bool found_inf,
              const wire::ApplyRequest* followed);
  // The training starts: workers read the values of kStagedValues first where these were written since the last start,
  // and else the values.
  void start();
  void staged_written() { staged_written_ = true; }

 private:
  void declare(const wire::RegisterRequest& registered);
  bool cuts_tensors() const;
  int64_t boundary(int server, int servers) const;
  void follow(const wire::ApplyRequest& request);
  void apply_frozen();
  void update_elements(optim::Optimizer& optimizer, const std::vector<void*>& buffers);
  void update_tensors(optim::Optimizer& optimizer, const std::vector<void*>& buffers, bool found_inf);
  // Rounds the part's values and slots to ClusterOptions::variables_as.
  void round_variables();

  std::vector<wire::Tensor> tensors_;
  bool staged_ = false;
  core::ReduceOp op_ = core::ReduceOp::kMean;
  at::ScalarType type_ = at::kFloat;
  std::optional<at::ScalarType> variables_as_;
  size_t width_ = 0;
  nn::ParameterSet set_;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers_;
  std::string settings_;
  bool cut_ = false;
  int64_t begin_ = 0, end_ = 0;
  std::vector<std::unique_ptr<LazyBlock>> blocks_;  // by worker
  std::unique_ptr<LazyBlock> previous_, scratch_;   // kStaged: values before the last update
  bool staged_written_ = false;
  std::vector<uint64_t> frozen_;
  optim::StepState state_;
};

}  // namespace trainyard::parallel
