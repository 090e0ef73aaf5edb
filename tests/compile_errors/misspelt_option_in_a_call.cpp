// error: convert .* to 'const trainyard::train::LoopOptions&'
#include "trainyard/train/loop/trainer.h"

namespace misspelt_option_in_a_call {

namespace train = trainyard::train;

void run(train::Trainer& trainer) {
#ifdef MISTAKE
  trainer.train({.steps_per_epoc = 100, .max_epoch = 3});
#else
  trainer.train({.steps_per_epoch = 100, .max_epoch = 3});
#endif
}

}  // namespace misspelt_option_in_a_call
