// The text that says how gradients are all-reduced, by size:
//
//   spec     = range { ":" limit ":" range }
//   range    = algorithm [ "#" shards ]
//   limit    = digits [ "K" | "k" | "M" | "G" | "T" ]        bytes; K is 1024, M 1024 K, ...
//
// All but "nccl" and "nccl/..." run on CPUs; docs/design/collectives.md describes them.
//
// "pscpu:32k:xring#2": tensors of up to 32 KiB by pscpu, larger ones by xring in two shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::parallel {

struct AllReduceRange {
  std::string algorithm;               // one of all_reduce_algorithms()
  int64_t shards = 1;                  // 1 to kMostShards
  std::optional<int64_t> limit_bytes;  // largest tensor of this range; nullopt: all larger ones (the last range)
  bool operator==(const AllReduceRange&) const = default;
};

// More parts than any machine has use for; each costs some steps for every tensor.
constexpr int64_t kMostShards = 1024;

// Returns the names that tf_cnn_benchmarks knows ("nccl", "nccl/xring", ..., "collective"), and those that only this
// program does: "ring", "rechd", "shuffle", "pscpu/xring" and "pscpu/rechd". "first/second" exchanges within each
// machine by the first and between machines by the second.
const std::vector<std::string>& all_reduce_algorithms();

// Parses a spec. Returns at least one range. Throws kInvalidArgument: "all_reduce_spec not well formed: ...", or
// "all_reduce_spec (...) contains ..." with what is wrong: a non-integer range, non-integer or too many shards, an
// invalid alg.
std::vector<AllReduceRange> parse_all_reduce_spec(std::string_view spec);
// Does the same with algorithms of these names.
std::vector<AllReduceRange> parse_all_reduce_spec(std::string_view spec, const std::vector<std::string>& known);
// Returns the text of a spec. Limits are in the largest unit that divides them.
std::string all_reduce_spec_text(const std::vector<AllReduceRange>& ranges);

// The spec that lets each run measure which algorithms are the fastest (measured_all_reduce.h). The functions above do
// not take it.
constexpr std::string_view kAutoAllReduceSpec = "auto";

}  // namespace trainyard::parallel
