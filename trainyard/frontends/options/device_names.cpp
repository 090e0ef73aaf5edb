#include "trainyard/frontends/options/device_names.h"

#include <charconv>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/lower_case.h"
#include "trainyard/parallel/process_group/launcher_claims.h"

namespace trainyard::frontends {
namespace {

[[noreturn]] void refuse_devices(const std::vector<std::string>& names, const char* problem) {
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem,
                                                        .where = "devices",
                                                        .expected = "such as cpu:0, cpu:1 or gpu:0, gpu:1",
                                                        .actual = fmt::format("[{}]", fmt::join(names, ", "))});
}

std::string plain_name(std::string name) {
  name = core::lower_case(name);
  for (const std::string_view prefix : {"/", "device:"}) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  return name;
}

}  // namespace

DeviceOptions read_device_names(const std::vector<std::string>& names) {
  if (names.empty()) refuse_devices(names, "there is no device to train on");
  DeviceOptions devices{.replicas = static_cast<int64_t>(names.size())};
  std::set<std::string> seen;
  for (const std::string& given : names) {
    const std::string name = plain_name(given);
    const size_t colon = name.find(':');
    const std::string kind = name.substr(0, colon), number = colon == std::string::npos ? "0" : name.substr(colon + 1);
    int index = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    const bool whole = error == std::errc() && end == number.data() + number.size() && index >= 0;
    if (!whole || (kind != "cpu" && kind != "gpu")) refuse_devices(names, "this is no name of a device");
    if (!seen.insert(fmt::format("{}:{}", kind, index)).second) refuse_devices(names, "a device is named twice");
    if (kind == "gpu") devices.gpu_indices.push_back(index);
  }
  const size_t gpus = devices.gpu_indices.size();
  if (gpus != 0 && gpus != names.size()) refuse_devices(names, "CPUs and GPUs cannot train together");
  devices.gpu = gpus != 0;
  return devices;
}

train::OpenDevices open_named_devices(const DeviceOptions& named) {
  train::OpenDevices opened = train::open_devices(named.gpu_indices);
  opened.replicas = static_cast<int>(named.replicas);
  return opened;
}

namespace {

const char* update_of_processes(int64_t replicas) {
  return replicas > 1 ? "collective_all_reduce" : "horovod";
}

}  // namespace

train::OpenDevices open_named_devices_together(DeviceOptions named) {
  if (!parallel::several_processes()) return open_named_devices(named);
  named.variable_update = update_of_processes(named.replicas);
  if (named.replicas == 1) named.gpu_indices.clear();  // each process takes the GPU of its own
  return open_device(named, {});
}

std::string variable_update_of(const train::OpenDevices& opened, const std::string& alone) {
  return opened.ranks() > 1 ? update_of_processes(opened.replicas) : alone;
}

}  // namespace trainyard::frontends
