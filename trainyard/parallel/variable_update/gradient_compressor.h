// Reduces the gradients of one replica in a compressed form, with error feedback (gradient_compression.h).
//
// A step whose reduced gradients are not finite on some rank changes nothing of what the compressor keeps: all ranks
// see it in the numbers that they have exchanged, and mark their gradients as not a number, so that the step is
// skipped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/variable_update/gradient_compression.h"

namespace trainyard::parallel {

// A gradient that is compressed, as a matrix.
struct CompressedGradient {
  nn::ParameterId id{};
  int64_t offset = 0;        // of its first element in ParameterSet::gradients()
  int64_t error_offset = 0;  // the same in the error memory, which has the compressed gradients only
  int64_t rows = 0, columns = 0;
  int64_t count() const { return rows * columns; }
};

// Used by the replica's thread, and between steps by others.
class GradientCompressor {
 public:
  virtual ~GradientCompressor() = default;

  // Turns the gradients of all ranks into an approximation of their sum or mean, with the same bits everywhere.
  // Collective.
  void reduce();
  // Sets the factor that the next gradients have (a loss scale): what is kept of earlier ones is converted to it.
  void set_gradient_scale(double scale) { scale_ = scale; }

  const std::vector<CompressedGradient>& compressed() const { return compressed_; }
  // Returns the error memory, [elements], which is empty when nothing is compressed. It changes in reduce().
  const at::Tensor& error() const { return error_; }
  const GradientBytes& bytes() const { return bytes_; }
  // Returns the bytes of one reduction in the compressed form, and without compression.
  GradientBytes bytes_of_step() const;
  // Returns the bytes of memory that it keeps.
  int64_t memory_bytes() const;

  // Saves what all ranks have alike: the number of steps, the scale of errors, the start of the next step.
  void save(core::StateWriter& writer) const;
  // Saves an error memory as tensors "error/<rank>/<parameter>", in the parameters' shapes.
  void save_error(core::StateWriter& writer, int rank, const at::Tensor& error) const;
  // Loads what these have saved. Saved error memories of another number of ranks are shared out equally, so that what
  // is still to be applied stays the same in all. What a state does not have starts from the beginning: rank 0 logs it.
  void load(const core::StateReader& reader);

 protected:
  // `set` is allocated; it and the communicator must outlive this. Throws kUnsupported for parameters on a device.
  GradientCompressor(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                     const GradientCompression& options, std::vector<CompressedGradient> compressed);

  // Adds errors times `factor` to the gradients, exchanges them in the compressed form, and writes gradients and
  // errors. Returns false when what was exchanged is not finite; the gradients are undefined then, all else unchanged.
  virtual bool exchange(double factor) = 0;
  // Returns the elements and the bytes of the compressed form.
  virtual int64_t compressed_bytes() const = 0;
  virtual int64_t own_memory_bytes() const = 0;
  virtual void save_own(core::StateWriter& writer) const = 0;
  // Returns false when something of it was not in the state, and starts from the beginning.
  virtual bool load_own(const core::StateReader& reader) = 0;

  // Starts the all-reduce of a copy of the gradients that are not compressed; null when there are none.
  std::unique_ptr<core::PendingCollective> start_plain();
  bool plain_is_finite() const;
  void take_plain();  // copies them back

  const nn::ParameterSet& set() const { return set_; }
  core::Communicator& communicator() const { return communicator_; }
  core::ReduceOp op() const { return op_; }
  const GradientCompression& options() const { return options_; }
  // Returns the factor by which a rank's part of the result is smaller than the result.
  double share_of_rank() const { return op_ == core::ReduceOp::kSum ? 1.0 / communicator_.size() : 1.0; }
  int64_t steps() const { return steps_; }
  at::Tensor& mutable_error() { return error_; }

 private:
  void mark_not_finite();
  void load_errors(const core::StateReader& reader);
  // Adds the saved error memory of a rank, times `factor`. Returns false when it is not there.
  bool add_saved_error(const core::StateReader& reader, int rank, double factor);

  const nn::ParameterSet& set_;
  core::Communicator& communicator_;
  const core::ReduceOp op_;
  const GradientCompression options_;
  const std::vector<CompressedGradient> compressed_;
  std::vector<nn::ParameterId> plain_ids_;
  at::Tensor error_;        // [elements of the compressed gradients]
  at::Tensor plain_;        // [elements of the others]
  double scale_ = 1;        // of the gradients
  double error_scale_ = 1;  // of the errors
  int64_t steps_ = 0;       // reductions whose result was finite
  GradientBytes bytes_;
};

// Returns the compressor of `options`, whose method is not kNone.
std::unique_ptr<GradientCompressor> make_gradient_compressor(const nn::ParameterSet& set,
                                                             core::Communicator& communicator, core::ReduceOp op,
                                                             const GradientCompression& options);

// Returns "powersgd of rank 2, 1.1 MB instead of 102.2 MB a step: 93.5 times less".
std::string compression_text(const GradientCompression& options, const GradientBytes& bytes);

}  // namespace trainyard::parallel
