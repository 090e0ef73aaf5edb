// Compresses gradients to matrices of low rank: see CompressionMethod::kPowerSgd.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/parallel/variable_update/gradient_compressor.h"

namespace trainyard::parallel {

class PowerSgd : public GradientCompressor {
 public:
  PowerSgd(const nn::ParameterSet& set, core::Communicator& communicator, core::ReduceOp op,
           const GradientCompression& options);

 protected:
  bool exchange(double factor) override;
  int64_t compressed_bytes() const override;
  int64_t own_memory_bytes() const override;
  // "q/<parameter>": [elements of a row, rank], the second matrix of the last step. The next step makes its columns
  // orthonormal.
  void save_own(core::StateWriter& writer) const override;
  bool load_own(const core::StateReader& reader) override;

 private:
  // The two narrow matrices of a gradient, P and Q, in p_ and q_.
  struct Factors {
    int64_t rank = 0;
    int64_t p_offset = 0, q_offset = 0;
  };
  // Rows or columns of a gradient that a thread works on.
  struct Part {
    size_t matrix = 0;
    int64_t begin = 0, end = 0;
  };
  template <typename T>
  bool exchange_as(double factor);
  template <typename T>
  void make_start();  // next_q_ from q_

  std::vector<Factors> factors_;  // by compressed()
  std::vector<Part> rows_, columns_;
  at::Tensor p_;       // [sum of rank x rows]: columns behind each other
  at::Tensor q_;       // [sum of rank x columns], of the last step; zeros before the first
  at::Tensor next_q_;  // of the step that runs
};

}  // namespace trainyard::parallel
