#include "trainyard/parallel/collectives/all_reduce_spec.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::parallel {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<int64_t> parse_count(std::string_view digits) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

// "32k" -> 32768.
std::optional<int64_t> parse_bytes(std::string_view text) {
  int64_t unit = 1;
  if (!text.empty()) {
    const std::string_view suffixes = "KMGT";
    const size_t power = suffixes.find(text.back() == 'k' ? 'K' : text.back());
    if (power != std::string_view::npos) {
      unit = int64_t{1} << (10 * (power + 1));
      text.remove_suffix(1);
    }
  }
  const std::optional<int64_t> count = parse_count(text);
  if (!count || *count > std::numeric_limits<int64_t>::max() / unit) return std::nullopt;
  return *count * unit;
}

core::Error bad_part(std::string_view spec, std::string_view what, std::string_view part, std::string remedy) {
  return {
      core::ErrorCode::kInvalidArgument,
      {.problem = fmt::format("all_reduce_spec ({}) contains {} {}", spec, what, part), .remedy = std::move(remedy)}};
}

AllReduceRange parse_range(std::string_view spec, std::string_view part, const std::vector<std::string>& known) {
  const std::vector<std::string_view> pieces = split(part, '#');
  AllReduceRange range;
  range.algorithm = pieces[0];
  if (pieces.size() > 1) {
    const std::optional<int64_t> shards = pieces.size() == 2 ? parse_count(pieces[1]) : std::nullopt;
    if (!shards || *shards < 1) {
      throw bad_part(spec, "non-integer shards", part.substr(pieces[0].size() + 1), "write a number of at least 1");
    }
    if (*shards > kMostShards) {
      throw bad_part(spec, "too many shards", std::to_string(*shards), fmt::format("write at most {}", kMostShards));
    }
    range.shards = *shards;
  }
  if (std::find(known.begin(), known.end(), range.algorithm) == known.end()) {
    const std::string nearest = core::nearest_name(range.algorithm, known);
    throw bad_part(
        spec, "invalid alg", range.algorithm,
        nearest.empty() ? fmt::format("known: {}", fmt::join(known, ", ")) : fmt::format("did you mean {}?", nearest));
  }
  return range;
}

}  // namespace

const std::vector<std::string>& all_reduce_algorithms() {
  static const std::vector<std::string> algorithms = {"nccl",  "nccl/xring", "nccl/rechd",  "nccl/pscpu", "xring",
                                                      "pscpu", "psgpu",      "pscpu/pscpu", "collective", "ring",
                                                      "rechd", "shuffle",    "pscpu/xring", "pscpu/rechd"};
  return algorithms;
}

std::vector<AllReduceRange> parse_all_reduce_spec(std::string_view spec) {
  return parse_all_reduce_spec(spec, all_reduce_algorithms());
}

std::vector<AllReduceRange> parse_all_reduce_spec(std::string_view spec, const std::vector<std::string>& known) {
  const std::vector<std::string_view> parts = split(spec, ':');
  if (parts.size() % 2 == 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("all_reduce_spec not well formed: {}", spec),
                       .remedy = "write alg, or alg:limit:alg with a limit between two algorithms"});
  }
  std::vector<AllReduceRange> ranges;
  for (size_t i = 0; i < parts.size(); i += 2) {
    AllReduceRange range = parse_range(spec, parts[i], known);
    if (i + 1 < parts.size()) {
      range.limit_bytes = parse_bytes(parts[i + 1]);
      if (!range.limit_bytes) {
        throw bad_part(spec, "non-integer range", parts[i + 1], "write bytes, such as 32768 or 32k");
      }
      if (!ranges.empty() && *range.limit_bytes <= *ranges.back().limit_bytes) {
        throw core::Error(core::ErrorCode::kInvalidArgument,
                          {.problem = fmt::format("all_reduce_spec not well formed: {}", spec),
                           .expected = "limits that grow",
                           .actual = std::string(parts[i + 1])});
      }
    }
    ranges.push_back(std::move(range));
  }
  return ranges;
}

std::string all_reduce_spec_text(const std::vector<AllReduceRange>& ranges) {
  std::string text;
  for (const AllReduceRange& range : ranges) {
    text += range.algorithm;
    if (range.shards != 1) text += fmt::format("#{}", range.shards);
    if (!range.limit_bytes) continue;
    int64_t count = *range.limit_bytes;
    size_t power = 0;
    constexpr std::string_view kUnits = "KMGT";
    for (; count > 0 && count % 1024 == 0 && power < kUnits.size(); ++power) count /= 1024;
    text += fmt::format(":{}{}:", count, power == 0 ? "" : kUnits.substr(power - 1, 1));
  }
  return text;
}

}  // namespace trainyard::parallel
