#include "trainyard/data/pipeline/balanced_order.h"

#include <map>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"

namespace trainyard::data {
namespace {

// Returns the numbers in a random order (Fisher and Yates).
template <typename Number>
std::vector<Number> shuffled_numbers(std::vector<Number> numbers, core::RandomStream random) {
  for (size_t left = numbers.size(); left > 1; --left) std::swap(numbers[left - 1], numbers[random.below(left)]);
  return numbers;
}

}  // namespace

BalancedOrder::BalancedOrder(const std::vector<int64_t>& labels, uint64_t seed) : seed_(seed) {
  std::map<int64_t, std::vector<int64_t>> samples;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0) samples[labels[i]].push_back(static_cast<int64_t>(i));
  }
  for (auto& [label, own] : samples) classes_.push_back({.label = label, .samples = std::move(own)});
  if (classes_.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "classes cannot be balanced: no sample has a label that is known"});
  }
}

RepeatedSample BalancedOrder::draw_of(Class& drawn, int64_t round) const {
  const auto size = std::ssize(drawn.samples);
  const int64_t pass = round / size;
  if (drawn.pass != pass) {
    drawn.order = shuffled_numbers(
        drawn.samples, core::RandomStream(seed_, "balanced_samples",
                                          {static_cast<uint64_t>(drawn.label), static_cast<uint64_t>(pass)}));
    drawn.pass = pass;
  }
  return {.sample = drawn.order[round % size], .copy = pass};
}

std::vector<RepeatedSample> BalancedOrder::draws(int64_t first, int64_t count) {
  const auto classes = std::ssize(classes_);
  std::vector<size_t> places(classes_.size());
  for (size_t c = 0; c < places.size(); ++c) places[c] = c;
  std::vector<RepeatedSample> draws;
  draws.reserve(count);
  std::vector<size_t> round_order;
  int64_t known_round = -1;
  for (int64_t draw = first; draw < first + count; ++draw) {
    const int64_t round = draw / classes;
    if (round != known_round) {
      round_order =
          shuffled_numbers(places, core::RandomStream(seed_, "balanced_classes", {static_cast<uint64_t>(round)}));
      known_round = round;
    }
    draws.push_back(draw_of(classes_[round_order[draw % classes]], round));
  }
  return draws;
}

}  // namespace trainyard::data
