#include "trainyard/train/loop/rank_times.h"

#include <bit>
#include <cstdint>
#include <string>

#include "trainyard/core/sockets/frame.h"

namespace trainyard::train {

std::vector<StepTimes> gather_times(parallel::ProcessGroup& ranks, const StepTimes& own) {
  core::BodyWriter body;
  for (const double seconds : {own.total, own.input, own.compute, own.communication, own.update, own.waiting}) {
    body.number(std::bit_cast<int64_t>(seconds));
  }
  body.number(own.on_accelerator ? 1 : 0);
  std::vector<StepTimes> all;
  for (const std::string& text : ranks.gather("how long the steps took", body.take())) {
    core::BodyReader reader(text);
    StepTimes& times = all.emplace_back();
    for (double* part :
         {&times.total, &times.input, &times.compute, &times.communication, &times.update, &times.waiting}) {
      *part = std::bit_cast<double>(reader.number());
    }
    times.on_accelerator = reader.number() != 0;
  }
  return all;
}

}  // namespace trainyard::train
