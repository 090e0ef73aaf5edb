#include "trainyard/train/loop/rank_times.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/sockets/frame.h"

namespace trainyard::train {
namespace {

// Returns "bad_samples:17 bad_samples:40 ": the numbers that the source saves, of each of the sources that it combines.
std::string bad_samples_of(const data::BatchSource& source) {
  if (source.bad_samples() == 0) return "";
  core::MemoryState state;
  source.save(state);
  std::string samples;
  for (const std::string& name : state.names()) {
    if (name != "bad_samples" && !name.ends_with("/bad_samples")) continue;
    std::istringstream numbers(state.text(name));
    for (std::string number; numbers >> number;) samples += fmt::format("{}:{} ", name, number);
  }
  return samples;
}

}  // namespace

std::vector<StepTimes> gather_times(parallel::ProcessGroup& ranks, const StepTimes& own) {
  core::BodyWriter body;
  for (const double seconds : {own.total, own.input, own.compute, own.communication, own.update, own.waiting}) {
    body.real(seconds);
  }
  body.number(own.on_accelerator ? 1 : 0);
  std::vector<StepTimes> all;
  for (const std::string& text : ranks.gather("how long the steps took", body.take())) {
    core::BodyReader reader(text);
    StepTimes& times = all.emplace_back();
    for (double* part :
         {&times.total, &times.input, &times.compute, &times.communication, &times.update, &times.waiting}) {
      *part = reader.real();
    }
    times.on_accelerator = reader.number() != 0;
  }
  return all;
}

int64_t gather_bad_samples(parallel::ProcessGroup& ranks, const data::BatchSource& source) {
  constexpr size_t kMostBytes = size_t{16} << 20;  // of all lists; without lists, the largest count is returned
  std::string own = bad_samples_of(source);
  if (own.size() > kMostBytes / static_cast<size_t>(ranks.size())) own.clear();
  core::BodyWriter body;
  body.number(source.bad_samples()).text(own);
  int64_t most = 0;
  std::set<std::string> different;  // a sample is another rank's in another epoch
  for (const std::string& text : ranks.gather("the bad samples", body.take())) {
    core::BodyReader reader(text);
    most = std::max(most, reader.number());
    std::istringstream samples(reader.text());
    for (std::string sample; samples >> sample;) different.insert(sample);
  }
  return std::max(most, static_cast<int64_t>(different.size()));
}

}  // namespace trainyard::train
