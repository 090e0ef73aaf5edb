// An order of samples in which each class is drawn equally often, whatever its number of samples.
//
// Draws come in rounds, without an end: each round draws one sample of each class, the classes in a random order. A
// class visits its samples in a random order, and in another one once all have been drawn; so the samples of a class
// are drawn equally often, too. The k-th draw is a pure function of (labels, seed, k), so that runs resume anywhere and
// ranks take their slices of the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/data/pipeline/repeated_sample.h"

namespace trainyard::data {

// One thread at a time.
class BalancedOrder {
 public:
  // `labels` has the label of each sample; -1: the sample is never drawn. Throws kInvalidArgument when all are.
  BalancedOrder(const std::vector<int64_t>& labels, uint64_t seed);

  // Returns draws [first, first + count). RepeatedSample::copy is the number of times that the class has visited all of
  // its samples before, so that a sample that comes twice is augmented in two ways.
  [[nodiscard]] std::vector<RepeatedSample> draws(int64_t first, int64_t count);

 private:
  struct Class {
    int64_t label = 0;
    std::vector<int64_t> samples{};  // ascending
    int64_t pass = -1;               // the pass that `order` is of
    std::vector<int64_t> order{};
  };
  RepeatedSample draw_of(Class& drawn, int64_t round) const;

  uint64_t seed_;
  std::vector<Class> classes_;  // those with samples, by label
};

}  // namespace trainyard::data
