// How long it takes until a model is there with its weights: a user waits for it at every start.

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::models::build_time_test {
namespace {

// Half a second is the bound on two idle cores (docs/models.md has figures). Tests run side by side, with sanitizers,
// too.
constexpr double kMostSeconds = 10;
// Models that take longer are built twice more, for the median: a virtual machine's first use of memory is its
// hypervisor's time, a second for half a gigabyte.
constexpr double kWorthASecondLook = 0.25;

double seconds_to_build(const std::string& name, DatasetFamily family) {
  core::trim_cpu_allocator();  // as in a program of its own
  const auto start = std::chrono::steady_clock::now();
  nn::ParameterSet set;
  nn::GradientSink sink(set);
  const auto executor =
      nn::make_executor("cpu", build_model(name, family_name(family), {}), {.parameters = &set, .gradients = &sink});
  set.allocate();
  set.initialize(1);
  return core::seconds_since(start);
}

TEST(Zoo, ModelsAreThereSoon) {
  core::install_cpu_allocator();
  std::vector<std::pair<double, std::string>> times;
  for (const DatasetFamily family : {DatasetFamily::kImagenet, DatasetFamily::kCifar10}) {
    for (const std::string& name : model_names(family)) {
      std::vector<double> turns{seconds_to_build(name, family)};
      for (int i = 0; i < 2 && turns[0] > kWorthASecondLook; ++i) turns.push_back(seconds_to_build(name, family));
      std::sort(turns.begin(), turns.end());
      times.emplace_back(turns[turns.size() / 2], name);
    }
  }
  std::sort(times.rbegin(), times.rend());
  for (size_t i = 0; i < 8; ++i) fmt::print("{:.3f} s  {}\n", times[i].first, times[i].second);
  EXPECT_LT(times[0].first, kMostSeconds) << times[0].second;
}

}  // namespace
}  // namespace trainyard::models::build_time_test
