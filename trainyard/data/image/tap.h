// An input pixel of a resized row or column. CUDA's compiler reads it, too, so it includes nothing.
#pragma once

namespace trainyard::data {

// One input position and its weight in an output value.
struct Tap {
  int index;
  float weight;
};

}  // namespace trainyard::data
