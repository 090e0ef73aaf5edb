// Which algorithm a convolution runs with: direct, or one of Winograd's, AMX, our own for 1x1 windows or LibTorch's
// where that is faster. The run's choices come first (nn/execution/kernel_choices.h); what is new to it is measured
// once for a shape, direction, instruction set and number of threads and kept for the process and in a file for the
// next one, or follows a rule on the shape.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/kernel_choices.h"

namespace trainyard::nn::cpu {

// Returns the kernel to use; null where there is not even a direct one. With kAuto all algorithms that there are run a
// few times on memory of their own when the shape is new, and their packing of weights with them; one caller at a time
// measures. LibTorch's is one of them where libtorch_by_processor() says so. What is chosen, by measuring or by the
// rule, is added to the run's choices, if it has any. The rule takes AMX for every shape that it can compute, since it
// multiplies eight times as fast; otherwise see winograd_by_shape() and pointwise_by_shape().
std::unique_ptr<ConvolutionKernel> choose_convolution(const ConvolutionShape& shape, ConvolutionKernel::Options options,
                                                      const KernelOptions& kernels);

// Returns whether Winograd is taken by the rule, where it is possible: if there are 32 channels on either side and, in
// float, at least 32 tiles of 4x4 output pixels (over the batch). With fewer tiles the transformed weights, 36 numbers
// for 9, cost more than the multiplications that they save; with 16 channels the transformed images do. In bfloat16
// tiles have 2x2 pixels and weights 16 numbers, and the tiles do not count. In float the rule prefers F(2x2, 3x3) to
// F(4x4, 3x3) where it needs no more products: on maps of up to 2 x 2 pixels, and of 5 x 5 and 6 x 6.
bool winograd_by_shape(const ConvolutionShape& shape);

// Returns whether our kernels for 1x1 windows (pointwise_convolution.h), where they are possible, are considered at
// all, and then taken by the rule: for the gradient of weights; with AVX2 for that of an input of at least 32 channels;
// with AVX-512 for that of the input and the forward on maps of at least 512 pixels. Elsewhere oneDNN's are as fast,
// and measuring both would only delay the first step.
bool pointwise_by_shape(const ConvolutionShape& shape, ConvolutionDirection direction);

// Returns the algorithm's name in choices: "direct", "winograd", "winograd4", "winograd2", "pointwise", "amx",
// "libtorch".
std::string_view name_of(ConvolutionAlgorithm algorithm);

// What was measured, or chosen by the rule while other programs disturbed the measuring, by description ("float
// 32x64x56x56 to 64x56x56, 3x3 pad 1 1 1 1, forward, 2 threads, AVX-512"). Any thread may call the methods.
class ConvolutionChoices {
 public:
  struct Choice {
    ConvolutionAlgorithm algorithm = ConvolutionAlgorithm::kDirect;
    // The fastest run of each that was tried; empty: not measured, but chosen by the rule.
    std::vector<std::pair<ConvolutionAlgorithm, double>> seconds{};
  };
  // Returns the process's choices, which read their file when first asked for. A file that cannot be read counts as
  // empty.
  static ConvolutionChoices& instance();
  // `file`: where choices are kept; empty: nowhere.
  explicit ConvolutionChoices(std::string file);

  std::optional<Choice> find(const std::string& description) const;
  // Adds a choice, also to the file, and returns the one that holds: an earlier one of this process or another has
  // precedence. A file that cannot be written is a warning.
  Choice add(const std::string& description, const Choice& choice);
  std::map<std::string, Choice> all() const;
  const std::string& file() const { return file_; }

 private:
  void read();
  std::string text() const;

  const std::string file_;
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;
};

// Returns "direct 1.2 ms, winograd 0.8 ms", or that the rule decided.
std::string describe_times(const ConvolutionChoices::Choice& choice);

// Returns for people what the run's choices were made by: a line for each, with the times of all that were tried.
std::vector<std::string> describe_choices(const KernelChoices& run, const ConvolutionChoices& measured);

// One run of an algorithm.
struct TrialRun {
  double seconds = 0;
  bool disturbed = false;  // another program took a core from one of our threads
};

// Returns the algorithm with the fastest run, and the fastest run of each. They take turns, so that what else the
// machine does meets all of them; each warms up first. A disturbed run does not count: a thread that loses its core
// holds up all of its team, at each barrier, and Winograd has more of these. The runs beside it do count, since on a
// machine with two cores hardly a turn of four algorithms passes without any. Returns nothing when one of them had too
// few undisturbed runs. One that took more than twice as long as the fastest does not run again, and keeps its time. Of
// equals the first one is taken. No turn begins that would not be over within `most_seconds`,
// warming up included, if it takes as long as the one before: what was found until then decides. Where an algorithm has
// no time by then, it returns a choice without times.
std::optional<ConvolutionChoices::Choice> fastest(const std::vector<ConvolutionAlgorithm>& algorithms,
                                                  const std::function<TrialRun(ConvolutionAlgorithm)>& run,
                                                  double most_seconds = std::numeric_limits<double>::infinity());

// Seconds for which one process measures, all its convolutions together. What is new then follows the rule in this run,
// and is measured by the next one. The last measurement may take longer, by one warming up of its algorithms.
constexpr double kMeasuringSeconds = 10;
// Returns the seconds that are left of them. choose_convolution() takes away what it needed, under a lock of its own; a
// test may set them while nobody chooses.
double& measuring_seconds_left();

}  // namespace trainyard::nn::cpu
