// Ranks whose gradients are compressed, each with a parameter set and a compressor of its own on a thread of a test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/connected_ranks.h"
#include "trainyard/parallel/variable_update/gradient_compressor.h"

namespace trainyard::parallel {

using NamedShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

class CompressedRanks {
 public:
  struct Rank {
    nn::ParameterSet set;
    std::unique_ptr<GradientCompressor> compressor;
    // The gradient of the parameter, whose offset in the block depends on the order of declaration.
    at::Tensor gradient(const std::string& name) const { return set.gradient(*set.find(name)); }
  };

  CompressedRanks(int size, const NamedShapes& shapes, const GradientCompression& options,
                  core::ReduceOp op = core::ReduceOp::kMean, at::ScalarType dtype = at::kDouble)
      : communicators_(make_thread_communicators(size)), ranks_(static_cast<size_t>(size)) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].set = nn::ParameterSet({.dtype = dtype});
      for (const auto& [name, shape] : shapes) {
        ranks_[r].set.declare({.name = name, .shape = shape, .init = nn::Initializer::zeros()});
      }
      ranks_[r].set.allocate();
      ranks_[r].compressor = make_gradient_compressor(ranks_[r].set, *communicators_[r], op, options);
    }
  }

  // Reduces the gradients that `fill` writes, on all ranks.
  void reduce(const std::function<void(int rank, Rank& own)>& fill) {
    expect_none(on_ranks(communicators_, [&](core::Communicator& communicator) {
      const at::NoGradGuard without_gradients;
      Rank& own = ranks_[static_cast<size_t>(communicator.rank())];
      fill(communicator.rank(), own);
      own.compressor->reduce();
    }));
  }

  size_t size() const { return ranks_.size(); }
  Rank& operator[](size_t rank) { return ranks_[rank]; }

  // What all ranks keep, as a checkpoint has it.
  core::MemoryState state() const {
    core::MemoryState state;
    ranks_[0].compressor->save(state);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].compressor->save_error(state, static_cast<int>(r), ranks_[r].compressor->error());
    }
    return state;
  }
  void load(const core::StateReader& state) {
    for (Rank& rank : ranks_) rank.compressor->load(state);
  }

 private:
  Communicators communicators_;
  std::vector<Rank> ranks_;
};

inline bool equal_states(const core::MemoryState& a, const core::MemoryState& b) {
  if (a.names() != b.names()) return false;
  for (const std::string& name : a.names()) {
    if (name.starts_with("error/") || name.starts_with("q/")) {
      if (!a.tensor(name).equal(b.tensor(name))) return false;
    }
  }
  return a.integer("steps") == b.integer("steps") && a.real("error_scale") == b.real("error_scale");
}

}  // namespace trainyard::parallel
