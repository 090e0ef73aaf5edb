#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <limits>
#include <mutex>
#include <sstream>
#include <utility>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/resource.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/machine/user_cache.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/nn/cpu/convolution/libtorch/libtorch_kernel.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/measuring_time.h"

namespace trainyard::nn::cpu {
namespace {

// The file with another number is not read: a kernel that is new or much faster changes it, and is measured.
constexpr const char* kFormat = "trainyard convolutions 9";
// How often each algorithm that may be the fastest runs after one run that warms up: at least kLeastRuns times, and on
// until kSeconds are used up. So short kernels, which another program's turn on a core distorts most, run often. Where
// one algorithm is left, once; where a turn takes longer than kLongTurn, the run that warms up is enough.
constexpr int kLeastRuns = 3, kMostRuns = 25;
constexpr double kSeconds = 0.03;  // for all together
// Seconds that disturbed runs may take, and the number of shapes for which they take more before a process takes the
// machine for busy.
constexpr double kDisturbedBudget = 0.25;
// The part of a run that our threads may wait for a core: no machine is so idle that the system takes none for its own
// work, and that is over soon. Another program that computes takes one for milliseconds.
constexpr double kUndisturbedPart = 0.03;
// Where the system does not say how long they waited: a run of so many seconds may lose a core once.
constexpr double kUndisturbedSeconds = 0.02;
constexpr int kBusyShapes = 4;
// An algorithm does not run again that took so many times as long as the fastest while it warmed up, in its first run,
// or in the best of several.
constexpr double kGiveUpWarmUp = 2, kGiveUpFirst = 1.5, kGiveUpLater = 1.2;
// Where a turn takes so long, one run is enough, and the first one is as good as another: what was cold is soon warm.
// What more runs could still tell apart makes no difference to a step, and the first step waits for them.
constexpr double kLongTurn = 0.02;
// Those that are left after their least runs and within so much of the fastest are as fast as each other: to tell them
// apart would take longer than it saves.
constexpr double kAtPar = 1.04;
// Our forwards and gradients of inputs for 1x1 windows with AVX-512 are for maps of so many pixels.
constexpr int64_t kLargeMapPixels = 512;
constexpr uint64_t kMostRounded = 256 << 20;  // bytes of memory that are rounded up

struct AlgorithmName {
  ConvolutionAlgorithm algorithm;
  std::string_view name;
};
// In the order in which --conv_algorithm=winograd and the rule prefer them. Neither ever takes LibTorch's.
constexpr AlgorithmName kAlgorithms[] = {{ConvolutionAlgorithm::kAmx, "amx"},
                                         {ConvolutionAlgorithm::kWinograd4, "winograd4"},
                                         {ConvolutionAlgorithm::kWinograd, "winograd"},
                                         {ConvolutionAlgorithm::kWinograd2, "winograd2"},
                                         {ConvolutionAlgorithm::kWinograd3, "winograd3"},
                                         {ConvolutionAlgorithm::kStrassen, "strassen"},
                                         {ConvolutionAlgorithm::kPointwise, "pointwise"},
                                         {ConvolutionAlgorithm::kPixelPairs, "pixel_pairs"},
                                         {ConvolutionAlgorithm::kDirect, "direct"},
                                         {ConvolutionAlgorithm::kLibtorch, "libtorch"}};

using Kernel = std::unique_ptr<ConvolutionKernel>;

std::string_view name_of(ConvolutionDirection direction) {
  return core::enum_name<ConvolutionDirection::kBackwardWeights>(direction,
                                                                 {"forward", "backward data", "backward weights"});
}

std::string_view name_of(UnitActivation activation) {
  return core::enum_name<UnitActivation::kTanh>(
      activation, {"none", "relu", "relu6", "silu", "hard_swish", "hard_sigmoid", "sigmoid", "gelu", "tanh"});
}

// Returns the description of a choice: all that decides which kernels there are, and what they take. Inference has its
// own, since Winograd then transforms the weights beforehand.
std::string describe(const ConvolutionShape& s, const ConvolutionKernel::Options& options) {
  std::string steps;
  if (s.groups != 1) steps += fmt::format(" groups {}", s.groups);
  if (s.plain_input) steps += " plain";
  if (options.sum) steps += " sum";
  if (options.activation != UnitActivation::kNone) steps += fmt::format(" {}", name_of(options.activation));
  if (s.stride_height != 1 || s.stride_width != 1) {
    steps += fmt::format(" stride {} {}", s.stride_height, s.stride_width);
  }
  if (s.dilation_height != 1 || s.dilation_width != 1) {
    steps += fmt::format(" dilation {} {}", s.dilation_height, s.dilation_width);
  }
  return fmt::format("{} {}x{}x{}x{} to {}x{}x{}, {}x{} pad {} {} {} {}{}, {}, {} threads, {}",
                     s.dtype == DataType::kFloat ? "float" : "bfloat16", s.batch, s.in_channels, s.in_height,
                     s.in_width, s.out_channels, s.out_height, s.out_width, s.kernel_height, s.kernel_width, s.top,
                     s.left, s.bottom, s.right, steps, options.inference ? "inference" : name_of(options.direction),
                     omp_get_max_threads(), describe_isa());
}

// Returns zeros. Memory has a power of two of bytes, so that the next shape's is that of this one: pages that are new
// cost more than the kernels that run on them (2 s a GiB where a hypervisor has to find them). Large memory has no more
// than it needs, which may be nearly all that there is.
at::Tensor bytes(int64_t count) {
  const uint64_t least = std::max<int64_t>(count, 1);
  at::Tensor memory =
      at::empty({static_cast<int64_t>(least <= kMostRounded ? std::bit_ceil(least) : least)}, at::kByte);
  memory.narrow(0, 0, static_cast<int64_t>(least)).zero_();
  return memory;
}

// One kernel that is there, of the algorithms that a shape may run with.
struct Candidate {
  ConvolutionAlgorithm algorithm;
  Kernel kernel;
};
using Candidates = std::vector<Candidate>;

int64_t most(const Candidates& all, int64_t (ConvolutionKernel::*bytes_of)() const) {
  int64_t bytes = 0;
  for (const Candidate& one : all) bytes = std::max(bytes, (*one.kernel.*bytes_of)());
  return bytes;
}

// One run after the other on zeros: these kernels take the same time for any values.
class KernelBenchmark {
 public:
  KernelBenchmark(const ConvolutionShape& s, const ConvolutionKernel::Options& options, const Candidates& all)
      : direction_(options.direction),
        source_(map(s, s.in_channels, s.in_height * s.in_width)),
        output_(map(s, s.out_channels, s.out_height * s.out_width)),
        weights_(bytes(most(all, &ConvolutionKernel::weights_bytes))),
        scratch_(bytes(most(all, &ConvolutionKernel::scratch_bytes))),
        bias_(bytes((s.out_channels + channel_block()) * int64_t{sizeof(float)})),
        has_bias_(s.bias) {
    // Weights that do not change are packed once.
    if (!options.inference) {
      plain_ = bytes(s.out_channels * (s.in_channels / s.groups) * s.kernel_height * s.kernel_width *
                     int64_t{sizeof(float)});
    }
  }

  TrialRun run(const ConvolutionKernel& kernel) const {
    const std::optional<double> waited = team_waited();
    const int64_t switches = forced_switches();
    const auto begin = std::chrono::steady_clock::now();
    execute(kernel);
    const double seconds = core::seconds_since(begin);
    if (waited) return {seconds, team_waited().value_or(0) - *waited > kUndisturbedPart * seconds};
    return {seconds, forced_switches() - switches > static_cast<int64_t>(seconds / kUndisturbedSeconds)};
  }

 private:
  static at::Tensor map(const ConvolutionShape& s, int64_t channels, int64_t pixels) {
    const int64_t block = channel_block();
    return bytes(s.batch * ((channels + block - 1) / block * block) * pixels * size_of(s.dtype));
  }

  // Returns the seconds that the threads of a kernel have waited for a core so far, all of them together.
  static std::optional<double> team_waited() {
    double waited = 0;
    int known = 1;
#pragma omp parallel reduction(+ : waited) reduction(min : known)
    {
      const std::optional<double> mine = core::seconds_waited_for_core();
      waited += mine.value_or(0);
      known = mine ? 1 : 0;
    }
    return known == 1 ? std::optional(waited) : std::nullopt;
  }

  static int64_t forced_switches() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
  }

  void execute(const ConvolutionKernel& kernel) const {
    auto* const bias = has_bias_ ? static_cast<float*>(bias_.data_ptr()) : nullptr;
    void *const source = source_.data_ptr(), *const output = output_.data_ptr(), *const packed = weights_.data_ptr();
    auto* const plain = plain_.defined() ? static_cast<float*>(plain_.data_ptr()) : nullptr;
    switch (direction_) {
      case ConvolutionDirection::kForward:
        if (plain != nullptr) kernel.pack(plain, packed);
        return kernel.forward(source, packed, bias, output, scratch_.data_ptr());
      case ConvolutionDirection::kBackwardData:
        if (plain != nullptr) kernel.pack(plain, packed);
        return kernel.backward_data(output, packed, source, scratch_.data_ptr());
      case ConvolutionDirection::kBackwardWeights:
        kernel.backward_weights(source, output, packed, bias, scratch_.data_ptr());
        if (plain != nullptr && !kernel.has_plain_gradient()) kernel.unpack(packed, plain);
        return;
    }
  }

  ConvolutionDirection direction_;
  at::Tensor source_, output_, weights_, scratch_, bias_;
  at::Tensor plain_;  // undefined: packing does not count
  bool has_bias_;
};

std::optional<ConvolutionChoices::Choice> measure(const ConvolutionShape& shape,
                                                  const ConvolutionKernel::Options& options, const Candidates& all,
                                                  double most_seconds) {
  const KernelBenchmark benchmark(shape, options, all);
  std::vector<ConvolutionAlgorithm> algorithms;
  for (const Candidate& one : all) algorithms.push_back(one.algorithm);
  const auto run = [&](ConvolutionAlgorithm algorithm) {
    core::count_work();
    const auto wanted = std::find(algorithms.begin(), algorithms.end(), algorithm);
    return benchmark.run(*all[static_cast<size_t>(wanted - algorithms.begin())].kernel);
  };
  return fastest(algorithms, run, most_seconds);
}

std::optional<ConvolutionAlgorithm> algorithm_of(std::string_view name) {
  for (const AlgorithmName& one : kAlgorithms) {
    if (name == one.name) return one.algorithm;
  }
  return std::nullopt;
}

bool has(const Candidates& all, ConvolutionAlgorithm algorithm) {
  return std::any_of(all.begin(), all.end(), [&](const Candidate& one) { return one.algorithm == algorithm; });
}

// Returns the products of a channel pair, transformed in tiles of `tile` x `tile` output pixels.
int64_t winograd_products(const ConvolutionShape& s, int64_t tile) {
  const int64_t tiles = ((s.out_height + tile - 1) / tile) * ((s.out_width + tile - 1) / tile);
  return s.batch * tiles * (tile + 2) * (tile + 2);
}

bool is_winograd(ConvolutionAlgorithm algorithm) {
  return algorithm == ConvolutionAlgorithm::kWinograd4 || algorithm == ConvolutionAlgorithm::kWinograd ||
         algorithm == ConvolutionAlgorithm::kWinograd2 || algorithm == ConvolutionAlgorithm::kWinograd3;
}

ConvolutionAlgorithm by_rule(const ConvolutionShape& shape, ConvolutionDirection direction, const Candidates& all) {
  if (has(all, ConvolutionAlgorithm::kAmx)) return ConvolutionAlgorithm::kAmx;
  if (has(all, ConvolutionAlgorithm::kStrassen) && strassen_by_shape(shape, direction)) {
    return ConvolutionAlgorithm::kStrassen;
  }
  if (has(all, ConvolutionAlgorithm::kPointwise) && pointwise_by_shape(shape, direction)) {
    return ConvolutionAlgorithm::kPointwise;
  }
  const bool winograd =
      std::any_of(all.begin(), all.end(), [](const Candidate& one) { return is_winograd(one.algorithm); });
  if (!winograd || !winograd_by_shape(shape)) {
    const bool pairs = has(all, ConvolutionAlgorithm::kPixelPairs) && pixel_pairs_by_shape(shape);
    return pairs ? ConvolutionAlgorithm::kPixelPairs : ConvolutionAlgorithm::kDirect;
  }
  const bool small_tiles = winograd_products(shape, 2) <= winograd_products(shape, 4);
  if (small_tiles && has(all, ConvolutionAlgorithm::kWinograd2)) return ConvolutionAlgorithm::kWinograd2;
  // In bfloat16 larger tiles cost accuracy: they are to save an eighth.
  const bool larger_tiles = 8 * winograd_products(shape, 3) <= 7 * winograd_products(shape, 2);
  if (larger_tiles && has(all, ConvolutionAlgorithm::kWinograd3)) return ConvolutionAlgorithm::kWinograd3;
  return all.front().algorithm;
}

ConvolutionAlgorithm measured(const std::string& description, const ConvolutionShape& shape,
                              const ConvolutionKernel::Options& options, const Candidates& all) {
  // Two that measure at once would disturb each other, and the replicas of a run ask for the same shapes.
  static std::mutex measuring;
  const std::lock_guard lock(measuring);
  ConvolutionChoices& choices = ConvolutionChoices::instance();
  const auto there = [&](ConvolutionAlgorithm algorithm) { return has(all, algorithm); };
  if (const auto known = choices.find(description); known && there(known->algorithm)) return known->algorithm;
  MeasuringTime& time = MeasuringTime::instance();
  // Not saved: the next run continues to measure where this one has to stop.
  if (time.left() <= 0) return by_rule(shape, options.direction, all);
  static int busy_shapes = 0;
  std::optional<ConvolutionChoices::Choice> choice;
  if (busy_shapes < kBusyShapes) {
    const auto begin = std::chrono::steady_clock::now();
    choice = measure(shape, options, all, time.left());
    const bool in_time = !choice || !choice->seconds.empty();
    time.spend(in_time ? core::seconds_since(begin) : time.left());
    if (time.left() <= 0) {
      core::log::info(
          "convolutions were measured for {:.3g} s, which is all that this run may: the others follow the rule of "
          "--deterministic now, and are measured by the next run",
          time.allowed());
      if (!in_time) return by_rule(shape, options.direction, all);
    }
  }
  if (!choice) {
    // This choice is kept as well, so that the next run makes the same one.
    choice = ConvolutionChoices::Choice{.algorithm = by_rule(shape, options.direction, all)};
    if (++busy_shapes == kBusyShapes) core::log::warning("{}", describe_busy_machine(choices));
  }
  return choices.add(description, *choice, there).algorithm;
}

ConvolutionAlgorithm chosen(const ConvolutionShape& shape, const ConvolutionKernel::Options& options,
                            const KernelOptions& kernels, const Candidates& all) {
  if (kernels.convolutions == ConvolutionPolicy::kWinograd) return all.front().algorithm;
  const std::string description = describe(shape, options);
  std::optional<std::string> known;
  if (kernels.choices != nullptr) known = kernels.choices->find(description);
  if (!known) {
    known = name_of(kernels.convolutions == ConvolutionPolicy::kByShape ? by_rule(shape, options.direction, all)
                                                                        : measured(description, shape, options, all));
    if (kernels.choices != nullptr) known = kernels.choices->add(description, *known);
  }
  return algorithm_of(*known).value_or(ConvolutionAlgorithm::kDirect);
}

}  // namespace

std::string_view name_of(ConvolutionAlgorithm algorithm) {
  const auto* const named = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms),
                                         [&](const AlgorithmName& one) { return one.algorithm == algorithm; });
  return named->name;
}

bool winograd_by_shape(const ConvolutionShape& s) {
  const int64_t tiles = s.batch * ((s.out_height + 3) / 4) * ((s.out_width + 3) / 4);
  const bool enough = s.dtype == DataType::kBfloat16 || tiles >= 32;
  return enough && std::min(s.in_channels, s.out_channels) >= (s.dtype == DataType::kBfloat16 ? 24 : 32);
}

bool pointwise_by_shape(const ConvolutionShape& s, ConvolutionDirection direction) {
  if (direction == ConvolutionDirection::kBackwardWeights) return true;
  if (isa() != Isa::kAvx2) return s.in_height * s.in_width >= kLargeMapPixels;
  return direction == ConvolutionDirection::kBackwardData && s.in_channels >= 32;
}

bool strassen_by_shape(const ConvolutionShape& s, ConvolutionDirection direction) {
  const bool forward = direction == ConvolutionDirection::kForward;
  const int64_t inputs = (forward ? s.in_channels : s.out_channels) * s.kernel_height * s.kernel_width;
  return inputs >= 512 && (forward ? s.out_channels : s.in_channels) >= 256;
}

bool pixel_pairs_by_shape(const ConvolutionShape& s) {
  return s.kernel_height * s.kernel_width == 1 || std::min(s.in_channels, s.out_channels) >= 32;
}

Kernel choose_convolution(const ConvolutionShape& shape, ConvolutionKernel::Options options,
                          const KernelOptions& kernels) {
  Candidates all;
  for (const AlgorithmName& one : kAlgorithms) {
    options.algorithm = one.algorithm;
    const bool direct = one.algorithm == ConvolutionAlgorithm::kDirect;
    if (!direct && kernels.convolutions == ConvolutionPolicy::kDirect) continue;
    const bool pointwise = one.algorithm == ConvolutionAlgorithm::kPointwise;
    const bool libtorch = one.algorithm == ConvolutionAlgorithm::kLibtorch;
    if (!direct && !is_winograd(one.algorithm) && kernels.convolutions == ConvolutionPolicy::kWinograd) continue;
    // With AVX-512 it depends on the processor whether they are faster than oneDNN's on small maps.
    if (pointwise && isa() == Isa::kAvx2 && !pointwise_by_shape(shape, options.direction)) continue;
    // AMX multiplies more at a time: measuring would only delay the first step.
    if (one.algorithm == ConvolutionAlgorithm::kPixelPairs && has_amx()) continue;
    if (libtorch && !libtorch_by_processor(shape, has_amx())) continue;
    if (Kernel kernel = ConvolutionKernel::make(shape, options)) all.push_back({one.algorithm, std::move(kernel)});
  }
  const auto find = [&](ConvolutionAlgorithm algorithm) {
    return std::find_if(all.begin(), all.end(), [&](const Candidate& one) { return one.algorithm == algorithm; });
  };
  const auto direct = find(ConvolutionAlgorithm::kDirect);
  if (direct == all.end()) return nullptr;
  if (all.size() == 1) return std::move(direct->kernel);
  const auto best = find(chosen(shape, options, kernels, all));
  return std::move((best == all.end() ? direct : best)->kernel);  // the direct one for what this machine does not have
}

std::string describe_times(const ConvolutionChoices::Choice& choice) {
  if (choice.seconds.empty()) return "by the rule";
  std::vector<std::string> times;
  for (const auto& [algorithm, seconds] : choice.seconds) {
    times.push_back(fmt::format("{} {:.3g} ms", name_of(algorithm), 1e3 * seconds));
  }
  return fmt::format("{}", fmt::join(times, ", "));
}

std::string describe_busy_machine(const ConvolutionChoices& choices) {
  return "other programs use the processor: from here on, new convolutions follow the rule of --deterministic; " +
         (choices.file().empty() ? "a run on an idle machine measures them"
                                 : fmt::format("to measure them on an idle machine, remove {}", choices.file()));
}

std::vector<std::string> describe_choices(const KernelChoices& run, const ConvolutionChoices& measured) {
  std::vector<std::string> lines;
  for (const auto& [description, kernel] : run.all()) {
    const auto known = measured.find(description);
    lines.push_back(fmt::format("{}: {} ({})", description, kernel,
                                known && name_of(known->algorithm) == kernel ? describe_times(*known) : "by the rule"));
  }
  return lines;
}

namespace {

// The algorithms of which the fastest is wanted, and their runs so far. Times are in seconds.
class Contest {
 public:
  using Run = std::function<TrialRun(ConvolutionAlgorithm)>;
  // Runs each algorithm once, to warm up.
  Contest(const std::vector<ConvolutionAlgorithm>& algorithms, const Run& run) : run_(run) {
    for (const ConvolutionAlgorithm algorithm : algorithms) {
      const TrialRun warm_up = run(algorithm);
      all_.push_back({.algorithm = algorithm, .warm_up_counts = !warm_up.disturbed, .shortest = warm_up.seconds});
      best_warm_up_ = std::min(best_warm_up_, warm_up.seconds);
      last_turn_ += warm_up.seconds;
    }
    spent_ = last_turn_;
    once_ = last_turn_ > kLongTurn;
    if (once_) {
      for (Contender& one : all_) {
        if (one.warm_up_counts) count(one, one.shortest);
      }
    }
    count_left();
  }

  // Runs each that may be the fastest.
  void take_turn() {
    last_turn_ = 0;
    for (Contender& one : all_) {
      if (given_up(one) || (once_ && one.runs > 0)) continue;
      const TrialRun run = run_(one.algorithm);
      last_turn_ += run.seconds;
      (run.disturbed ? lost_ : counted_) += run.seconds;
      one.shortest = std::min(one.shortest, run.seconds);
      if (!run.disturbed) count(one, run.seconds);
    }
    spent_ += last_turn_;
    count_left();
  }

  bool decided() const {
    if (left_ == 1 || once_) return least_runs_ > 0;
    return least_runs_ >= kMostRuns || (least_runs_ >= kLeastRuns && (counted_ >= kSeconds || at_par()));
  }
  bool next_turn_ends_by(double seconds) const { return spent_ + last_turn_ <= seconds; }
  // Returns whether more was lost than a machine without other programs loses.
  bool too_disturbed() const { return lost_ > kDisturbedBudget + 2 * kLeastRuns * last_turn_; }
  // Returns the runs that counted of an algorithm that may be the fastest.
  int least_runs() const { return least_runs_; }

  ConvolutionChoices::Choice choice() const {
    ConvolutionChoices::Choice choice;
    if (least_runs_ == 0) return choice;
    choice.algorithm = std::min_element(all_.begin(), all_.end(), [](const Contender& a, const Contender& b) {
                         return a.best < b.best;
                       })->algorithm;
    for (const Contender& one : all_)
      choice.seconds.emplace_back(one.algorithm, one.runs > 0 ? one.best : one.shortest);
    return choice;
  }

 private:
  struct Contender {
    ConvolutionAlgorithm algorithm;
    bool warm_up_counts = false;
    double shortest = 0;  // run, with those that do not count
    double best = std::numeric_limits<double>::infinity();
    int runs = 0;  // that were not disturbed
  };

  void count(Contender& one, double seconds) {
    ++one.runs;
    one.best = std::min(one.best, seconds);
    best_ = std::min(best_, seconds);
  }

  bool given_up(const Contender& one) const {
    if (one.runs == 0) return one.warm_up_counts && one.shortest > kGiveUpWarmUp * best_warm_up_;
    return one.shortest > (one.runs == 1 ? kGiveUpFirst : kGiveUpLater) * best_;
  }

  bool at_par() const {
    return std::all_of(all_.begin(), all_.end(),
                       [&](const Contender& one) { return given_up(one) || one.best <= kAtPar * best_; });
  }

  void count_left() {
    least_runs_ = kMostRuns;
    left_ = 0;
    for (const Contender& one : all_) {
      if (given_up(one)) continue;
      least_runs_ = std::min(least_runs_, one.runs);
      ++left_;
    }
  }

  const Run& run_;
  std::vector<Contender> all_;
  double best_warm_up_ = std::numeric_limits<double>::infinity();
  double best_ = std::numeric_limits<double>::infinity();
  double last_turn_ = 0, spent_ = 0, counted_ = 0, lost_ = 0;
  int least_runs_ = 0;
  size_t left_ = 0;    // algorithms that may be the fastest
  bool once_ = false;  // one run of each is enough
};

}  // namespace

std::optional<ConvolutionChoices::Choice> fastest(const std::vector<ConvolutionAlgorithm>& algorithms,
                                                  const std::function<TrialRun(ConvolutionAlgorithm)>& run,
                                                  double most_seconds) {
  Contest contest(algorithms, run);
  while (!contest.decided() && contest.next_turn_ends_by(most_seconds)) {
    contest.take_turn();
    if (contest.decided() || !contest.too_disturbed()) continue;
    if (contest.least_runs() < kLeastRuns) return std::nullopt;
    break;
  }
  return contest.choice();
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

namespace {

// Returns nothing for a line that is not whole, or names what this version does not know.
std::optional<std::pair<std::string, ConvolutionChoices::Choice>> choice_in(const std::string& line) {
  std::istringstream fields(line);
  std::string name, description, tried;
  if (!std::getline(fields, name, '\t') || !std::getline(fields, description, '\t')) return std::nullopt;
  const auto algorithm = algorithm_of(name);
  if (!algorithm || description.empty()) return std::nullopt;
  ConvolutionChoices::Choice choice{.algorithm = *algorithm};
  while (std::getline(fields, tried, '\t')) {
    const size_t equals = tried.find('=');
    const auto of = algorithm_of(tried.substr(0, equals));
    double seconds = 0;
    if (equals == std::string::npos || !of || !(std::istringstream(tried.substr(equals + 1)) >> seconds)) {
      return std::nullopt;
    }
    choice.seconds.emplace_back(*of, seconds);
  }
  return std::pair(description, choice);
}

}  // namespace

// Behind the line kFormat, the file has a line for each choice, separated by tabs: the algorithm, the description, and
// for each that was tried its name, "=", and its time in seconds.
void ConvolutionChoices::read() {
  std::istringstream lines(core::local_file_system().read_file(file_, uint64_t{1} << 24));
  std::string line;
  if (!std::getline(lines, line) || line != kFormat) return;
  while (std::getline(lines, line)) {
    if (const auto read = choice_in(line)) choices_.insert(*read);  // what this process has used already stays
  }
}

std::optional<ConvolutionChoices::Choice> ConvolutionChoices::find(const std::string& description) const {
  const std::lock_guard lock(mutex_);
  const auto found = choices_.find(description);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

ConvolutionChoices::Choice ConvolutionChoices::add(const std::string& description, const Choice& choice,
                                                   const std::function<bool(ConvolutionAlgorithm)>& there) {
  const std::lock_guard lock(mutex_);
  const auto drop_what_is_not_there = [&] {
    const auto known = choices_.find(description);
    if (known != choices_.end() && there && !there(known->second.algorithm)) choices_.erase(known);
  };
  drop_what_is_not_there();
  // Another replica's thread may have been first.
  const auto known = choices_.find(description);
  if (known != choices_.end()) return known->second;
  try {
    // Another process may have measured meanwhile: what it kept counts, so that all runs from now on agree.
    if (!file_.empty() && core::local_file_system().exists(file_)) read();
    drop_what_is_not_there();  // the file has it still
    const Choice& kept = choices_.emplace(description, choice).first->second;
    if (file_.empty()) return kept;
    core::local_file_system().make_directories(core::parent_path(file_));
    core::local_file_system().write_file_atomically(file_, text());
  } catch (const core::Error& error) {
    // The next one fails alike, and a network has dozens.
    if (!std::exchange(warned_, true)) core::log::warning("measured convolutions are not kept: {}", error.what());
  }
  return choices_.emplace(description, choice).first->second;
}

std::string ConvolutionChoices::text() const {
  std::string result = fmt::format("{}\n", kFormat);
  for (const auto& [description, choice] : choices_) {
    result += fmt::format("{}\t{}", name_of(choice.algorithm), description);
    for (const auto& [tried, seconds] : choice.seconds) result += fmt::format("\t{}={:.9f}", name_of(tried), seconds);
    result += '\n';
  }
  return result;
}

std::map<std::string, ConvolutionChoices::Choice> ConvolutionChoices::all() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

}  // namespace trainyard::nn::cpu
