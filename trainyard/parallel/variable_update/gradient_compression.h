// How gradients are compressed before they are exchanged, for networks that are slower than the devices.
#pragma once

#include <cstdint>
#include <string_view>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::parallel {

enum class CompressionMethod : uint8_t { kNone, kPowerSgd, kTopK };
// Returns "none", "powersgd" or "topk".
[[nodiscard]] std::string_view compression_method_name(CompressionMethod method);
// Returns the method of a name. Throws kNotFound, with the known names.
[[nodiscard]] CompressionMethod compression_method(std::string_view name);

// Each replica keeps what the compression loses of its gradients, and adds it to the next ones (error feedback).
// Gradients of one dimension, and those that would not get smaller, are all-reduced as they are. The same on all ranks.
//
// kPowerSgd: a gradient, as a matrix of its first dimension by all others, is replaced by the product of two narrow
// matrices, which are all-reduced instead. Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient
// compression for distributed optimization", NeurIPS 2019, algorithms 1 and 2, with a warm start: the second matrix is
// the start of the next step's. The members have the names and the meanings that PyTorch's PowerSGDState gives them.
//
// kTopK: of each gradient the elements with the largest absolute values are exchanged, with their indices. Lin, Han,
// Mao, Wang, Dally, "Deep gradient compression", ICLR 2018, without its changes of momentum.
struct GradientCompression {
  CompressionMethod method = CompressionMethod::kNone;
  int64_t matrix_approximation_rank = 2;  // kPowerSgd: columns of both matrices; at most kMostRank
  double min_compression_rate = 2;        // kPowerSgd: a gradient that shrinks by less is not compressed
  int64_t start_iter = 0;                 // the steps before this one are not compressed
  double top_k_share = 0.01;              // kTopK: of a gradient's elements, at least one
  static constexpr int64_t kMostRank = 256;

  [[nodiscard]] bool is_default() const { return method == CompressionMethod::kNone; }
  void validate() const;  // throws kInvalidArgument
  bool operator==(const GradientCompression&) const = default;
};

// Bytes of gradients that one replica has handed to its collectives since it was made.
struct GradientBytes {
  int64_t exchanged = 0;
  int64_t uncompressed = 0;  // what it would have been without compression
};

}  // namespace trainyard::parallel
TRAINYARD_EXPORT_END
