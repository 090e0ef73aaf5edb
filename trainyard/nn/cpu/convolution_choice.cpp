#include "trainyard/nn/cpu/convolution_choice.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>
#include <utility>

#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <omp.h>

#include "trainyard/core/error.h"
#include "trainyard/core/file_system.h"
#include "trainyard/core/log.h"
#include "trainyard/core/user_cache.h"
#include "trainyard/nn/cpu/isa.h"

namespace trainyard::nn::cpu {
namespace {

constexpr const char* kFormat = "trainyard convolutions 1";
constexpr int kRuns = 3;  // after one that warms up; the fastest counts

using Kernel = std::unique_ptr<ConvolutionKernel>;

const char* name_of(ConvolutionDirection direction) {
  switch (direction) {
    case ConvolutionDirection::kForward:
      return "forward";
    case ConvolutionDirection::kBackwardData:
      return "backward data";
    case ConvolutionDirection::kBackwardWeights:
      return "backward weights";
  }
  return "";
}

// Winograd's inference transforms weights beforehand.
std::string describe(const ConvolutionShape& s, ConvolutionDirection direction, bool inference) {
  return fmt::format("{} {}x{}x{}x{} to {}x{}x{}, {}x{} pad {} {} {} {}, {}, {} threads, {}",
                     s.dtype == DataType::kFloat ? "float" : "bfloat16", s.batch, s.in_channels, s.in_height,
                     s.in_width, s.out_channels, s.out_height, s.out_width, s.kernel_height, s.kernel_width, s.top,
                     s.left, s.bottom, s.right, inference ? "inference" : name_of(direction), omp_get_max_threads(),
                     to_string(isa()));
}

at::Tensor bytes(int64_t count) {
  return at::zeros({std::max<int64_t>(count, 1)}, at::kByte);
}

// Seconds of one run, on zeros: these kernels take the same time for any values.
double time(const ConvolutionShape& s, ConvolutionDirection direction, const ConvolutionKernel& kernel) {
  const int64_t block = channel_block(), element = size_of(s.dtype);
  const auto map = [&](int64_t channels, int64_t pixels) {
    return bytes(s.batch * ((channels + block - 1) / block * block) * pixels * element);
  };
  const at::Tensor source = map(s.in_channels, s.in_height * s.in_width);
  const at::Tensor output = map(s.out_channels, s.out_height * s.out_width);
  const at::Tensor weights = bytes(kernel.weights_bytes()), scratch = bytes(kernel.scratch_bytes());
  const at::Tensor bias = bytes((s.out_channels + block) * int64_t{sizeof(float)});
  auto* const bias_data = s.bias ? static_cast<float*>(bias.data_ptr()) : nullptr;
  const auto run = [&] {
    switch (direction) {
      case ConvolutionDirection::kForward:
        return kernel.forward(source.data_ptr(), weights.data_ptr(), bias_data, output.data_ptr(), scratch.data_ptr());
      case ConvolutionDirection::kBackwardData:
        return kernel.backward_data(output.data_ptr(), weights.data_ptr(), source.data_ptr(), scratch.data_ptr());
      case ConvolutionDirection::kBackwardWeights:
        return kernel.backward_weights(source.data_ptr(), output.data_ptr(), weights.data_ptr(), bias_data,
                                       scratch.data_ptr());
    }
  };
  using Clock = std::chrono::steady_clock;
  run();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const Clock::time_point begin = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

ConvolutionAlgorithm measured(const ConvolutionShape& shape, const ConvolutionKernel::Options& options,
                              const ConvolutionKernel& direct, const ConvolutionKernel& winograd) {
  ConvolutionChoices& choices = ConvolutionChoices::instance();
  const ConvolutionDirection direction = options.direction;
  const std::string description = describe(shape, direction, options.inference);
  if (const auto known = choices.find(description)) return known->algorithm;
  ConvolutionChoices::Choice choice{.direct_seconds = time(shape, direction, direct),
                                    .winograd_seconds = time(shape, direction, winograd)};
  if (choice.winograd_seconds < choice.direct_seconds) choice.algorithm = ConvolutionAlgorithm::kWinograd;
  return choices.add(description, choice).algorithm;
}

}  // namespace

Kernel choose_convolution(const ConvolutionShape& shape, ConvolutionKernel::Options options, ConvolutionPolicy policy) {
  options.algorithm = ConvolutionAlgorithm::kDirect;
  Kernel direct = ConvolutionKernel::make(shape, options);
  if (direct == nullptr || policy == ConvolutionPolicy::kDirect) return direct;
  options.algorithm = ConvolutionAlgorithm::kWinograd;
  Kernel winograd = ConvolutionKernel::make(shape, options);
  if (winograd == nullptr) return direct;
  const ConvolutionAlgorithm algorithm = policy == ConvolutionPolicy::kWinograd
                                             ? ConvolutionAlgorithm::kWinograd
                                             : measured(shape, options, *direct, *winograd);
  return algorithm == ConvolutionAlgorithm::kWinograd ? std::move(winograd) : std::move(direct);
}

ConvolutionChoices& ConvolutionChoices::instance() {
  static ConvolutionChoices choices(core::user_cache_file("convolutions"));
  return choices;
}

ConvolutionChoices::ConvolutionChoices(std::string file) : file_(std::move(file)) {
  try {
    if (!file_.empty() && core::local_file_system().exists(file_)) read();
  } catch (const core::Error& error) {
    core::log::warning("measured convolutions are not used: {}", error.what());
  }
}

// One line a choice: the two times in seconds and the description, separated by tabs.
void ConvolutionChoices::read() {
  std::istringstream lines(core::local_file_system().read_file(file_, uint64_t{1} << 24));
  std::string line;
  if (!std::getline(lines, line) || line != kFormat) return;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    Choice choice;
    std::string description;
    if (!(fields >> choice.direct_seconds >> choice.winograd_seconds) || fields.get() != '\t') continue;
    std::getline(fields, description);
    if (choice.winograd_seconds < choice.direct_seconds) choice.algorithm = ConvolutionAlgorithm::kWinograd;
    choices_[description] = choice;
  }
}

std::optional<ConvolutionChoices::Choice> ConvolutionChoices::find(const std::string& description) const {
  const std::lock_guard lock(mutex_);
  const auto found = choices_.find(description);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

ConvolutionChoices::Choice ConvolutionChoices::add(const std::string& description, const Choice& choice) {
  const std::lock_guard lock(mutex_);
  // Another replica's thread may have been first.
  const auto [kept, added] = choices_.emplace(description, choice);
  if (!added || file_.empty()) return kept->second;
  try {
    // Another process may have measured meanwhile: what it kept counts, so that all runs from now on agree.
    if (core::local_file_system().exists(file_)) read();
    core::local_file_system().make_directories(core::parent_path(file_));
    core::local_file_system().write_file_atomically(file_, text());
  } catch (const core::Error& error) {
    core::log::warning("a measured convolution is not kept: {}", error.what());
  }
  return choices_[description];
}

std::string ConvolutionChoices::text() const {
  std::string result = fmt::format("{}\n", kFormat);
  for (const auto& [description, choice] : choices_) {
    result += fmt::format("{:.9f}\t{:.9f}\t{}\n", choice.direct_seconds, choice.winograd_seconds, description);
  }
  return result;
}

std::map<std::string, ConvolutionChoices::Choice> ConvolutionChoices::all() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

}  // namespace trainyard::nn::cpu
