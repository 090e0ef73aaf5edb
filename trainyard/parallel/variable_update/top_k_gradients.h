// Exchanges the largest elements of gradients alone: see CompressionMethod::kTopK.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/parallel/variable_update/gradient_compressor.h"

namespace trainyard::parallel {

// Writes the indices of the `count` elements with the largest absolute values, 0 < count <= size, in ascending order,
// and their values. Of equal ones the first are taken; a NaN is larger than any number. `Index` has the width of T.
template <typename T, typename Index>
void select_largest(const T* values, int64_t size, int64_t count, Index* indices, T* selected);

class TopKGradients : public GradientCompressor {
 public:
  // Throws kUnsupported for a float gradient of 2^31 elements or more, whose indices are of 32 bits.
  TopKGradients(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
                const GradientCompression& options);

 protected:
  bool exchange(double factor) override;
  int64_t compressed_bytes() const override;
  int64_t own_memory_bytes() const override;
  void save_own(core::StateWriter&) const override {}
  bool load_own(const core::StateReader&) override { return true; }

 private:
  template <typename T, typename Index>
  bool exchange_largest(double factor);

  std::vector<int64_t> counts_, begins_;  // by compressed(): selected elements, and the first of them in a message
  int64_t selected_ = 0;                  // elements of a message
  at::Tensor message_;  // [2 selected_] int32, or int64 for double: the bits of the values, then the indices
};

}  // namespace trainyard::parallel
