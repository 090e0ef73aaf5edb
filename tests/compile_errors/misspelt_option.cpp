// error: 'const trainyard::train::LoopOptions' has no non-static data member named 'steps_per_epoc'
#include "trainyard/train/loop/trainer.h"

namespace misspelt_option {

namespace train = trainyard::train;

#ifdef MISTAKE
const train::LoopOptions kLoop{.steps_per_epoc = 100, .max_epoch = 3};
#else
const train::LoopOptions kLoop{.steps_per_epoch = 100, .max_epoch = 3};
#endif

}  // namespace misspelt_option
