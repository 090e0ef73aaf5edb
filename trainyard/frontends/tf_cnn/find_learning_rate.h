// `trainyard find-lr`: a range test of learning rates (optim/schedules/rate_range.h) with the model, the data and the
// optimizer of a run.
#pragma once

#include <iosfwd>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Trains a copy of the run for the steps of TfCnnOptions::range_test, from its newest checkpoint if it has one, else
// from its initial weights. Prints the proposal on `out` with the command that uses it, and writes the curve of the
// loss as an SVG image and as numbers. Saves nothing else: train_dir is only read. Returns true when `stop` has ended
// it early; what was measured until then is written. The loss is that of the data, without the regularization.
//
// Throws what training throws, kUnsupported with several processes.
bool write_range_test(PreparedRun& run, std::ostream& out, const core::StopToken& stop);

}  // namespace trainyard::frontends
