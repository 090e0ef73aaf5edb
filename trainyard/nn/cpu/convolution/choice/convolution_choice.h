// Selects the algorithm of a convolution: direct, or, when faster, one of Winograd's, AMX, our own for 1x1 windows or
// for gradients of weights in bfloat16, Strassen's, or LibTorch's. The run's saved choices take
// precedence (nn/execution/kernel_choices.h). Otherwise the algorithms are measured once for a shape, direction,
// instruction set and number of threads, and the result is cached in the process and in a file; or a rule on the shape
// decides.
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

// Returns the kernel to use, or null when there is not even a direct one. With kAuto all available algorithms run a few
// times, including their packing of weights, on memory of their own when the shape is new; one caller at a time
// measures. Once MeasuringTime is spent, new shapes follow the rule in this run, and are measured by the next one; the
// last measurement may take longer, by one warm-up of its algorithms. LibTorch's is one of them when
// libtorch_by_processor() returns true. The choice, measured or by the rule, is added to the run's choices, if it has
// any. The rule takes AMX for every shape that it can compute, since it multiplies eight times as fast; otherwise see
// winograd_by_shape(), pointwise_by_shape(), pixel_pairs_by_shape() and strassen_by_shape().
std::unique_ptr<ConvolutionKernel> choose_convolution(const ConvolutionShape& shape, ConvolutionKernel::Options options,
                                                      const KernelOptions& kernels);

// Returns whether the rule selects Winograd, when it is possible: in float, if there are 32 channels on either side
// and at least 32 tiles of 4x4 output pixels (over the batch). With fewer tiles the transformed weights, 36 numbers for
// 9, cost more than the multiplications that they save; with 16 channels the transformed images do. In bfloat16 tiles
// have 2x2 pixels and weights 16 numbers: 24 channels are enough, and the number of tiles is ignored. In float the rule
// prefers F(2x2, 3x3) to F(4x4, 3x3) when it needs no more products: on maps of up to 2 x 2 pixels, and of 5 x 5 and 6
// x 6.
bool winograd_by_shape(const ConvolutionShape& shape);

// Returns whether the rule selects our kernels for 1x1 windows (pointwise_convolution.h), when they are possible: for
// the gradient of weights; with AVX2 for that of an input of at least 32 channels; with AVX-512 for that of the input
// and the forward on maps of at least 512 pixels. Elsewhere oneDNN's are as fast. With AVX2, measuring both there would
// only delay the first step; with AVX-512 they are measured everywhere, since on Zen 5 ours are up to 8 % faster on
// smaller maps, too, where on Zen 4 they are at par.
bool pointwise_by_shape(const ConvolutionShape& shape, ConvolutionDirection direction);

// Returns whether the rule selects Strassen's products (strassen_convolution.h), when they are possible: for at least
// 512 inputs of an output and 256 outputs, which in the gradient of the input are the channels of the output and of the
// input. Of fewer, sums of the parts take most of what they save.
bool strassen_by_shape(const ConvolutionShape& shape, ConvolutionDirection direction);

// Returns whether the rule selects our gradient of weights in bfloat16 (pixel_pairs_convolution.h) where it is possible
// and Winograd's is not selected: for 1x1 windows, and for others with 32 channels on either side. Of fewer channels,
// rearranging pixels for each position of the window takes longer than the products.
bool pixel_pairs_by_shape(const ConvolutionShape& shape);

// Returns the algorithm's name in choices: "direct", "winograd", "winograd4", "winograd2", "winograd3", "pointwise",
// "pixel_pairs", "strassen", "amx", "libtorch".
std::string_view name_of(ConvolutionAlgorithm algorithm);

// The measured choices, and those of the rule when other programs disturbed the measurement, by description ("float
// 32x64x56x56 to 64x56x56, 3x3 pad 1 1 1 1, forward, 2 threads, AVX-512"). Any thread may call the methods.
class ConvolutionChoices {
 public:
  struct Choice {
    ConvolutionAlgorithm algorithm = ConvolutionAlgorithm::kDirect;
    // The fastest run of each tried algorithm; empty: chosen by the rule.
    std::vector<std::pair<ConvolutionAlgorithm, double>> seconds{};
  };
  // Returns the process's choices, which are read from their file at the first use. A file that cannot be read counts
  // as empty.
  static ConvolutionChoices& instance();
  // `file` is where choices are saved; empty: nowhere.
  explicit ConvolutionChoices(std::string file);

  std::optional<Choice> find(const std::string& description) const;
  // Adds a choice, also to the file, and returns the valid one: an earlier choice of this or another process has
  // precedence, unless its algorithm is not there(), as after an update of oneDNN. Warns the first time that the file
  // cannot be written.
  Choice add(const std::string& description, const Choice& choice,
             const std::function<bool(ConvolutionAlgorithm)>& there = {});
  std::map<std::string, Choice> all() const;
  const std::string& file() const { return file_; }

 private:
  void read();
  std::string text() const;

  const std::string file_;
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;
  bool warned_ = false;  // that the file cannot be written
};

// Returns "direct 1.2 ms, winograd 0.8 ms", or that the rule decided.
std::string describe_times(const ConvolutionChoices::Choice& choice);

// Returns what a process says that stops measuring because other programs use the processor.
std::string describe_busy_machine(const ConvolutionChoices& choices);

// Describes how the run's choices were made: a line for each, with the times of all tried algorithms.
std::vector<std::string> describe_choices(const KernelChoices& run, const ConvolutionChoices& measured);

// One run of an algorithm.
struct TrialRun {
  double seconds = 0;
  bool disturbed = false;  // our threads waited for a core, which another program had
};

// Returns the algorithm with the fastest run, and the fastest run of each. They run in turns, so that other load on the
// machine affects all of them; each warms up first. A disturbed run does not count: a thread that loses its core blocks
// its whole team at each barrier, and Winograd has more barriers. Undisturbed runs of the same turn count, since on a
// machine with two cores hardly a turn of four algorithms passes without a disturbance. Returns nothing when an
// algorithm had too few undisturbed runs. An algorithm does not run again when its warm-up took more than twice as long
// as another's, its first run 1.5 times or the best of several 1.2 times as long as the fastest, and keeps its time;
// one fast run of it, counted or not, is enough for it to stay. When one is left, it runs once; when a warm-up of all
// takes more than 20 ms, one undisturbed run of each is enough, the warm-up's too; when all that are left are within
// 4 % of each other, three. The first of equal times is selected. A turn only starts if it would end within
// `most_seconds`, warm-up included, assuming the duration of the previous one; otherwise the times so far decide. When
// an algorithm has no time by then, returns a choice without times.
std::optional<ConvolutionChoices::Choice> fastest(const std::vector<ConvolutionAlgorithm>& algorithms,
                                                  const std::function<TrialRun(ConvolutionAlgorithm)>& run,
                                                  double most_seconds = std::numeric_limits<double>::infinity());

}  // namespace trainyard::nn::cpu
