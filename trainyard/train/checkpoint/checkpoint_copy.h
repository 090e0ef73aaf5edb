// A copy of a training's state in the host's memory, to be written while the training continues. What is written from
// it has the same bytes as what is written from the state itself.
//
//   std::shared_ptr<const CheckpointCopy> copy = CheckpointCopy::of(trainer, trainer.global_step(), nullptr, budget);
//   store.save(trainer.global_step(), identity, *copy);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/stateful.h"

namespace trainyard::train {
struct WrittenTensors;  // train/checkpoint/checkpoint_writer.h

class CheckpointCopy : public core::Stateful {
 public:
  // Copies what `state` saves, in its order. Tensors of `before` that have the same name and the same bits are shared
  // instead of copied; null: none are. Returns null when more than `budget` bytes would have to be copied. Throws
  // NonFiniteState (must_be_finite()), kInvalidArgument for a tensor that cannot be saved, and what `state` throws.
  static std::shared_ptr<const CheckpointCopy> of(const core::Stateful& state, int64_t global_step,
                                                  const CheckpointCopy* before, int64_t budget);

  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader&) override {}  // never: a copy is made to be saved

  int64_t global_step() const { return global_step_; }
  // Returns the bytes of all tensors, those that are shared included.
  int64_t bytes() const { return bytes_; }
  // Returns where the tensors have been written, which copies with the same tensors share. Only the thread that writes
  // checkpoints uses it.
  WrittenTensors& written() const { return *written_; }

 private:
  class Writer;
  using Value = std::variant<at::Tensor, int64_t, double, std::string>;

  explicit CheckpointCopy(int64_t global_step) : global_step_(global_step) {}

  int64_t global_step_;
  int64_t bytes_ = 0;
  std::vector<std::pair<std::string, Value>> entries_;  // in the order in which they were saved
  std::vector<size_t> tensors_;                         // places of the tensors in entries_
  std::shared_ptr<WrittenTensors> written_;
};

// Returns how many bytes a copy may take: half of what the machine has free, and what control groups leave this process
// of nine tenths of their limit. 0: nothing.
[[nodiscard]] int64_t checkpoint_copy_budget();

}  // namespace trainyard::train
