// Runs an epoch of a program over a loader's batches, measures it and reports it.
#pragma once

#include <cstdint>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/frontends/paddle/loader.h"
#include "trainyard/frontends/paddle/program.h"
#include "trainyard/frontends/paddle/report.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

// The position in an epoch that an earlier run has not completed.
struct EpochStart {
  int64_t step = 0;  // steps of the epoch that are done
};

// Runs `program` for an epoch (from 0), or for benchmark_warmup_steps and benchmark_steps with args.benchmark; fewer
// steps when the executor's stop was requested. Advances the scheduler after each step. Batches go from the loader's
// source to the places as in any training, made ahead and without a copy.
//
// Resets the meters of `fetchs`, and reports every args.print_interval steps: loss, top1, top5, data_time,
// compute_time, batch_time (seconds), ips (images a second, of all places) and, in a training, lr. Reports and returns
// at the end: loss, epoch_time (seconds), ips, and in an evaluation top1 and top5. A benchmark reports nothing at its
// end and returns ips, over the steps after its warm-up, and in an evaluation latency_avg, latency_p90, latency_p95 and
// latency_p99 (milliseconds a batch, percentiles as numpy.quantile() has them); data that end before it are restarted.
// Returns nothing when it was stopped.
//
// Throws kInvalidArgument for a training without a scheduler, and what steps, reading and the report throw.
Metrics run(const Arguments& args, const Loader& loader, Executor& exe, const Program& program, Fetchs& fetchs,
            int64_t epoch, Mode mode, LrScheduler* lr_scheduler, Report& report, const EpochStart& start = {});

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
