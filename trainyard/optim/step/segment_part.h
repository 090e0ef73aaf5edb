// The elements that one block of a GPU updates.
#pragma once

#include <cstdint>

namespace trainyard::optim {

// Elements [begin, begin + count) of a parameter set's flat blocks, all of one segment; begin is a multiple of 16.
struct SegmentPart {
  int64_t begin = 0;
  int32_t count = 0;
  int32_t decays = 0;   // 1: weight decay applies
  int32_t segment = 0;  // its index in the list of segments
};

}  // namespace trainyard::optim
