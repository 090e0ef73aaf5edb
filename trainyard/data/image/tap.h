// An input pixel of a resized row or column. Also for CUDA's compiler, so it includes nothing.
#pragma once

namespace trainyard::data {

// One input position and its part in an output value.
struct Tap {
  int index;
  float weight;
};

}  // namespace trainyard::data
