#include "trainyard/nn/cpu/convolution/convolution_choice.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <sstream>
#include <utility>

#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <omp.h>
#include <sys/resource.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/machine/user_cache.h"
#include "trainyard/nn/cpu/kernels/isa.h"

namespace trainyard::nn::cpu {
namespace {

constexpr const char* kFormat = "trainyard convolutions 2";
// How often each algorithm runs after one run that warms up: at least kLeastRuns times, and on until kSeconds are used
// up. So short kernels, which another program's turn on a core distorts most, run often.
constexpr int kLeastRuns = 3, kMostRuns = 25;
constexpr double kSeconds = 0.03;  // for both together
// Seconds to wait for undisturbed runs, and the number of shapes for which that fails before a process takes the
// machine for busy.
constexpr double kPatience = 0.25;
constexpr int kBusyShapes = 4;

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

// Returns the description of a choice. Inference has its own, since Winograd then transforms the weights beforehand.
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

// One run after the other on zeros: these kernels take the same time for any values.
class Rehearsal {
 public:
  Rehearsal(const ConvolutionShape& s, ConvolutionDirection direction, int64_t weights_bytes, int64_t scratch_bytes)
      : direction_(direction),
        source_(map(s, s.in_channels, s.in_height * s.in_width)),
        output_(map(s, s.out_channels, s.out_height * s.out_width)),
        weights_(bytes(weights_bytes)),
        scratch_(bytes(scratch_bytes)),
        bias_(bytes((s.out_channels + channel_block()) * int64_t{sizeof(float)})),
        has_bias_(s.bias) {}

  struct Run {
    double seconds = 0;
    bool disturbed = false;  // another program took a core from one of our threads
  };

  Run run(const ConvolutionKernel& kernel) const {
    using Clock = std::chrono::steady_clock;
    const int64_t switches = forced_switches();
    const Clock::time_point begin = Clock::now();
    execute(kernel);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return {seconds, forced_switches() != switches};
  }

 private:
  static at::Tensor map(const ConvolutionShape& s, int64_t channels, int64_t pixels) {
    const int64_t block = channel_block();
    return bytes(s.batch * ((channels + block - 1) / block * block) * pixels * size_of(s.dtype));
  }

  static int64_t forced_switches() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
  }

  void execute(const ConvolutionKernel& kernel) const {
    auto* const bias = has_bias_ ? static_cast<float*>(bias_.data_ptr()) : nullptr;
    void *const source = source_.data_ptr(), *const output = output_.data_ptr();
    switch (direction_) {
      case ConvolutionDirection::kForward:
        return kernel.forward(source, weights_.data_ptr(), bias, output, scratch_.data_ptr());
      case ConvolutionDirection::kBackwardData:
        return kernel.backward_data(output, weights_.data_ptr(), source, scratch_.data_ptr());
      case ConvolutionDirection::kBackwardWeights:
        return kernel.backward_weights(source, output, weights_.data_ptr(), bias, scratch_.data_ptr());
    }
  }

  ConvolutionDirection direction_;
  at::Tensor source_, output_, weights_, scratch_, bias_;
  bool has_bias_;
};

// Returns the algorithm with the fastest run. The two take turns, so that what else the machine does meets both.
// Returns nothing when too few runs were undisturbed: a thread that loses its core holds up all of its team, at each
// barrier, and Winograd has more of these.
std::optional<ConvolutionChoices::Choice> measure(const ConvolutionShape& shape, ConvolutionDirection direction,
                                                  const ConvolutionKernel& direct, const ConvolutionKernel& winograd) {
  const Rehearsal rehearsal(shape, direction, std::max(direct.weights_bytes(), winograd.weights_bytes()),
                            std::max(direct.scratch_bytes(), winograd.scratch_bytes()));
  rehearsal.run(direct);
  rehearsal.run(winograd);
  ConvolutionChoices::Choice choice{.direct_seconds = std::numeric_limits<double>::infinity(),
                                    .winograd_seconds = std::numeric_limits<double>::infinity()};
  int runs = 0;
  double counted = 0, spent = 0;
  while (runs < kMostRuns && (runs < kLeastRuns || counted < kSeconds)) {
    const Rehearsal::Run first = rehearsal.run(direct), second = rehearsal.run(winograd);
    spent += first.seconds + second.seconds;
    if (!first.disturbed && !second.disturbed) {
      choice.direct_seconds = std::min(choice.direct_seconds, first.seconds);
      choice.winograd_seconds = std::min(choice.winograd_seconds, second.seconds);
      counted += first.seconds + second.seconds;
      ++runs;
    } else if (spent - counted > kPatience + 2 * kLeastRuns * (first.seconds + second.seconds)) {
      return std::nullopt;
    }
  }
  if (choice.winograd_seconds < choice.direct_seconds) choice.algorithm = ConvolutionAlgorithm::kWinograd;
  return choice;
}

const char* name_of(ConvolutionAlgorithm algorithm) {
  return algorithm == ConvolutionAlgorithm::kWinograd ? "winograd" : "direct";
}

std::optional<ConvolutionAlgorithm> algorithm_of(std::string_view name) {
  for (const auto algorithm : {ConvolutionAlgorithm::kDirect, ConvolutionAlgorithm::kWinograd}) {
    if (name == name_of(algorithm)) return algorithm;
  }
  return std::nullopt;
}

ConvolutionAlgorithm measured(const std::string& description, const ConvolutionShape& shape,
                              ConvolutionDirection direction, const ConvolutionKernel& direct,
                              const ConvolutionKernel& winograd) {
  // Two that measure at once would disturb each other, and the replicas of a run ask for the same shapes.
  static std::mutex measuring;
  const std::lock_guard lock(measuring);
  ConvolutionChoices& choices = ConvolutionChoices::instance();
  if (const auto known = choices.find(description)) return known->algorithm;
  static int busy_shapes = 0;
  std::optional<ConvolutionChoices::Choice> choice;
  if (busy_shapes < kBusyShapes) choice = measure(shape, direction, direct, winograd);
  if (!choice) {
    // This choice is kept as well, so that the next run makes the same one.
    choice = ConvolutionChoices::Choice{.algorithm = convolution_by_shape(shape)};
    if (++busy_shapes == kBusyShapes) {
      core::log::warning(
          "other programs use the processor: from here on, new convolutions follow the rule of --deterministic; to "
          "measure them on an idle machine, remove {}",
          choices.file());
    }
  }
  return choices.add(description, *choice).algorithm;
}

ConvolutionAlgorithm chosen(const ConvolutionShape& shape, const ConvolutionKernel::Options& options,
                            const KernelOptions& kernels, const ConvolutionKernel& direct,
                            const ConvolutionKernel& winograd) {
  if (kernels.convolutions == ConvolutionPolicy::kWinograd) return ConvolutionAlgorithm::kWinograd;
  const std::string description = describe(shape, options.direction, options.inference);
  std::optional<std::string> known;
  if (kernels.choices != nullptr) known = kernels.choices->find(description);
  if (!known) {
    const ConvolutionAlgorithm algorithm = kernels.convolutions == ConvolutionPolicy::kByShape
                                               ? convolution_by_shape(shape)
                                               : measured(description, shape, options.direction, direct, winograd);
    known = name_of(algorithm);
    if (kernels.choices != nullptr) known = kernels.choices->add(description, *known);
  }
  return algorithm_of(*known).value_or(ConvolutionAlgorithm::kDirect);
}

}  // namespace

ConvolutionAlgorithm convolution_by_shape(const ConvolutionShape& s) {
  const int64_t tiles = s.batch * ((s.out_height + 3) / 4) * ((s.out_width + 3) / 4);
  const bool enough = s.dtype == DataType::kBfloat16 || tiles >= 32;
  return enough && std::min(s.in_channels, s.out_channels) >= 32 ? ConvolutionAlgorithm::kWinograd
                                                                 : ConvolutionAlgorithm::kDirect;
}

Kernel choose_convolution(const ConvolutionShape& shape, ConvolutionKernel::Options options,
                          const KernelOptions& kernels) {
  options.algorithm = ConvolutionAlgorithm::kDirect;
  Kernel direct = ConvolutionKernel::make(shape, options);
  if (direct == nullptr || kernels.convolutions == ConvolutionPolicy::kDirect) return direct;
  options.algorithm = ConvolutionAlgorithm::kWinograd;
  Kernel winograd = ConvolutionKernel::make(shape, options);
  if (winograd == nullptr) return direct;
  const ConvolutionAlgorithm algorithm = chosen(shape, options, kernels, *direct, *winograd);
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

// Behind the line kFormat, the file has a line for each choice: the algorithm, the two times in seconds and the
// description, separated by tabs.
void ConvolutionChoices::read() {
  std::istringstream lines(core::local_file_system().read_file(file_, uint64_t{1} << 24));
  std::string line;
  if (!std::getline(lines, line) || line != kFormat) return;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    Choice choice;
    std::string algorithm, description;
    if (!(fields >> algorithm >> choice.direct_seconds >> choice.winograd_seconds) || fields.get() != '\t') continue;
    std::getline(fields, description);
    const auto named = algorithm_of(algorithm);
    if (!named) continue;
    choice.algorithm = *named;
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
    result += fmt::format("{}\t{:.9f}\t{:.9f}\t{}\n", name_of(choice.algorithm), choice.direct_seconds,
                          choice.winograd_seconds, description);
  }
  return result;
}

std::map<std::string, ConvolutionChoices::Choice> ConvolutionChoices::all() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

}  // namespace trainyard::nn::cpu
