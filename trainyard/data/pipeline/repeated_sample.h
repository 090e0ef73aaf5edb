// A sample of a sequence in which samples come several times.
#pragma once

#include <cstdint>

namespace trainyard::data {

struct RepeatedSample {
  int64_t sample = 0;  // index in the data set
  int64_t copy = 0;    // which repetition of the sample this is, from 0: each has random numbers of its own
  bool operator==(const RepeatedSample&) const = default;
};

}  // namespace trainyard::data
