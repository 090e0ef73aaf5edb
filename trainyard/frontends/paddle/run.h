// An epoch of a program over a loader's batches, with what is measured and said of it.
#pragma once

#include <cstdint>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/frontends/paddle/loader.h"
#include "trainyard/frontends/paddle/program.h"
#include "trainyard/frontends/paddle/report.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

// Where an epoch begins that an earlier run has left in the middle.
struct EpochStart {
  int64_t step = 0;  // steps of the epoch that are done
};

// Runs `program` for an epoch (from 0), or for benchmark_warmup_steps and benchmark_steps with args.benchmark; fewer
// steps where the executor's stop was asked for. Moves the scheduler after each step. Batches go from the loader's
// source to the places as in any training, made ahead and without a copy.
//
// Resets the meters of `fetchs`, and says every args.print_interval steps: loss, top1, top5, data_time, compute_time,
// batch_time (seconds), ips (images a second, of all places) and, in a training, lr. Says and returns at the end: loss,
// epoch_time (seconds), ips, and in an evaluation top1 and top5. A benchmark says nothing at its end and returns ips,
// over the steps behind its warm-up, and in an evaluation latency_avg, latency_p90, latency_p95 and latency_p99
// (milliseconds a batch, percentiles as numpy.quantile() has them); data that end before it begin anew. Returns nothing
// when it was stopped.
//
// Throws kInvalidArgument for a training without a scheduler, and what steps, reading and the report throw.
Metrics run(const Arguments& args, const Loader& loader, Executor& exe, const Program& program, Fetchs& fetchs,
            int64_t epoch, Mode mode, LrScheduler* lr_scheduler, Report& report, const EpochStart& start = {});

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
