// Newton-Schulz iterations that make a matrix nearly orthogonal, for muon.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trainyard::optim {

// Makes matrices U S' V^T of matrices U S V^T, S' being diagonal with elements between about 0.5 and 1.5 (Jordan et
// al., "Muon: An optimizer for hidden layers in neural networks", 2024):
//
//   X = G / max(|G|, 1e-7);  `steps` times X = a X + (b A + c A^2) X with A = X X^T, (a, b, c) = (3.4445, -4.7750,
//   2.0315)
//
// A is formed on the smaller side: X^T X for a matrix with more rows than columns, X = a X + X (b A + c A^2), which is
// the same without a transposition. A and A^2 are symmetric, so that one half of them is computed.
//
// It computes in the type of the matrix. The authors' programs compute in bfloat16, which GPUs multiply 16 times as
// fast as float and whose errors are far below the spread of S'. On a processor the products of a step take a per cent
// of it in float, and float makes runs repeatable over processors with and without bfloat16.
//
// The results have the same bits on any number of threads: products are cut into tiles of a fixed size, each of which
// one thread computes. For one thread at a time; it keeps its buffers.
class Orthogonalizer {
 public:
  // Replaces `matrix`, [rows, columns] of float or double, contiguous in host memory. Uses the calling thread's
  // intra-op threads.
  void operator()(const at::Tensor& matrix, int64_t steps);

 private:
  // Returns a buffer of this form, whose contents are not defined.
  static at::Tensor sized(at::Tensor& buffer, int64_t rows, int64_t columns, const at::Tensor& like);

  at::Tensor next_, gram_, polynomial_;
};

// Returns the sum of squares of a flat tensor of float or double in host memory, in double, with the same bits on any
// number of threads.
[[nodiscard]] double sum_of_squares(const at::Tensor& flat);

}  // namespace trainyard::optim
