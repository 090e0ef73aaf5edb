#include "trainyard/nn/cpu/convolution/strassen/strassen_convolution.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <c10/util/BFloat16.h>
#include <omp.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/convolution/strassen/algorithm.h"
#include "trainyard/nn/cpu/convolution/strassen/strassen.h"

namespace trainyard::nn::cpu {
namespace {

constexpr int64_t kStrassenAlignment = 64;

// A slice has so many pixels that the weights, which come from the last cache or from memory, are read seldom. Its sums
// come from the last cache; so a group of panels reads them at once, whose weights of one product, and whose parts of
// the result, stay in a core's second-level cache.
constexpr int64_t kMostPartPixels = 112, kGroupWeightBytes = 512 << 10, kGroupPartBytes = 256 << 10;
// A part has so many channels of each factor at least: sums take time, too.
constexpr int64_t kLeastPartDepth = 64, kLeastPartOutputs = 32;
// More in a training, whose weights are packed at each step, and where shapes that gain nothing are not to be measured.
constexpr int64_t kLeastTrainedPartDepth = 256, kLeastTrainedPartOutputs = 128;
// In a network weights come from memory, and there are 7/4 as many of them: they meet so many pixels of an image
// and of the batch at least.
constexpr int64_t kLeastImagePixels = 16, kLeastBatchPixels = 128;

int64_t whole_multiple(int64_t value, int64_t of) {
  return (value + of - 1) / of * of;
}

int64_t part_depth(const StrassenShape& s) {  // k of a part
  return s.in_channels * s.kernel_height * s.kernel_width / StrassenTable::kCuts;
}

StrassenShape strassen_shape(const ConvolutionShape& s) {
  return {.batch = s.batch,
          .in_channels = s.in_channels,
          .out_channels = s.out_channels,
          .in_height = s.in_height,
          .in_width = s.in_width,
          .out_height = s.out_height,
          .out_width = s.out_width,
          .kernel_height = s.kernel_height,
          .kernel_width = s.kernel_width,
          .stride_height = s.stride_height,
          .stride_width = s.stride_width,
          .dilation_height = s.dilation_height,
          .dilation_width = s.dilation_width,
          .top = s.top,
          .left = s.left};
}

// Slices do not depend on the number of threads, as results do on them.
StrassenPlan strassen_plan(const StrassenShape& s, DataType dtype, int64_t threads) {
  constexpr int64_t kCuts = StrassenTable::kCuts;
  const int64_t pixels = s.out_height * s.out_width, width = kStrassenPanelBlocks * channel_block();
  const int64_t slices = (pixels + kCuts * kMostPartPixels - 1) / (kCuts * kMostPartPixels);
  const int64_t part_pixels = ((pixels + slices - 1) / slices + kCuts - 1) / kCuts;
  const int64_t parts = kCuts * kCuts * part_pixels * width * int64_t{sizeof(float)};
  const int64_t fitting =
      std::min(kGroupWeightBytes / (part_depth(s) * width * size_of(dtype)), kGroupPartBytes / parts);
  StrassenPlan plan{.part_pixels = part_pixels,
                    .slices = (pixels + kCuts * part_pixels - 1) / (kCuts * part_pixels),
                    .group = std::max<int64_t>(1, fitting)};
  plan.shared = s.batch * plan.slices < 4 * threads;
  plan.sum_bytes =
      whole_multiple(StrassenTable::kProducts * part_pixels * part_depth(s) * size_of(dtype), kStrassenAlignment);
  plan.part_bytes = plan.group * parts;
  return plan;
}

class StrassenKernel : public ConvolutionKernel {
 public:
  StrassenKernel(const StrassenShape& shape, DataType dtype, const Options& options)
      : options_(options), dtype_(dtype), shape_(shape) {
    const int64_t threads = omp_get_max_threads();
    plan_ = strassen_plan(shape_, dtype_, threads);
    const int64_t sums = plan_.shared ? shape_.batch * plan_.slices : threads;
    scratch_bytes_ = sums * plan_.sum_bytes + threads * plan_.part_bytes;
  }

  int64_t weights_bytes() const override {
    return StrassenTable::kProducts * part_depth(shape_) * (shape_.out_channels / StrassenTable::kCuts) *
           size_of(dtype_);
  }
  int64_t scratch_bytes() const override { return scratch_bytes_; }
  const char* implementation() const override { return "strassen"; }
  // Sums of pixels, channels and outputs are multiplied. What is not finite, in the input or the weights, would reach
  // results that do not depend on it, and so would an overflow. Kernels of training say so themselves.
  bool hides_nan() const override { return options_.inference; }

  std::unique_ptr<ConvolutionKernel> with_activation(UnitActivation activation) const override {
    Options options = options_;
    options.activation = activation;
    return std::make_unique<StrassenKernel>(shape_, dtype_, options);
  }

  void pack(const float* plain, void* packed) const override {
    if (dtype_ != DataType::kFloat || shape_.kernel_height * shape_.kernel_width != 1) {
      return pack_windows(plain, packed);
    }
    strassen_pack({.in_channels = shape_.in_channels,
                   .out_channels = shape_.out_channels,
                   .transposed = options_.direction == ConvolutionDirection::kBackwardData,
                   .plain = plain,
                   .packed = static_cast<float*>(packed)});
  }

  void forward(const void* source, const void* weights, const float* bias, void* output, void* scratch) const override {
    multiply(source, weights, bias, output, scratch);
  }
  bool forward_is_finite(const void* source, const void* weights, const float* bias, void* output,
                         void* scratch) const override {
    return multiply(source, weights, bias, output, scratch);
  }
  void backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                     void* scratch) const override {
    multiply(output_gradient, weights, nullptr, source_gradient, scratch);
  }
  bool backward_data_is_finite(const void* output_gradient, const void* weights, void* source_gradient,
                               void* scratch) const override {
    return multiply(output_gradient, weights, nullptr, source_gradient, scratch);
  }

  void unpack(const void*, float*) const override { throw no_gradient_of_weights(); }
  void backward_weights(const void*, const void*, void*, float*, void*) const override {
    throw no_gradient_of_weights();
  }

 private:
  static core::Error no_gradient_of_weights() {
    return {core::ErrorCode::kInternal, {.problem = "Strassen's convolutions have no gradient of weights"}};
  }

  // Returns whether all of the result is finite before the activation.
  bool multiply(const void* source, const void* weights, const float* bias, void* output, void* scratch) const {
    bool not_finite = false;
    strassen_forward({.shape = shape_,
                      .plan = plan_,
                      .source = source,
                      .weights = weights,
                      .bias = bias,
                      .add = options_.sum,
                      .activation = options_.activation,
                      .output = output,
                      .scratch = scratch,
                      .not_finite = &not_finite},
                     dtype_);
    return !not_finite;
  }

  // Packs panel by panel and product by product: for an output after the other the sum of its rows in the parts, in the
  // order of the left factor's columns, [position of the window][channel].
  void pack_windows(const float* plain, void* packed) const {
    const int64_t depth = part_depth(shape_), lanes = channel_block(),
                  out_blocks = shape_.out_channels / lanes / StrassenTable::kCuts;
    const int64_t panels = (out_blocks + kStrassenPanelBlocks - 1) / kStrassenPanelBlocks;
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < panels * StrassenTable::kProducts; ++task) {
      const int64_t panel = task / StrassenTable::kProducts, product = task % StrassenTable::kProducts;
      const int64_t first = panel * kStrassenPanelBlocks,
                    width = std::min(kStrassenPanelBlocks, out_blocks - first) * lanes;
      const int64_t place = (first * lanes * StrassenTable::kProducts + product * width) * depth;
      std::vector<float> sum(static_cast<size_t>(depth));
      for (int64_t lane = 0; lane < width; ++lane) {
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (int part = 0; part < StrassenTable::kParts; ++part) {
          const int8_t factor = kStrassenTable.right[product][part];
          if (factor != 0) {
            add_row(plain, part % StrassenTable::kCuts * out_blocks * lanes + first * lanes + lane,
                    part / StrassenTable::kCuts * depth, factor, sum);
          }
        }
        put_column(sum, lane, width, place, packed);
      }
    }
  }

  // Adds factor * the weights of an output from k = `first` on.
  void add_row(const float* plain, int64_t output, int64_t first, int8_t factor, std::vector<float>& sum) const {
    const int64_t positions = shape_.kernel_height * shape_.kernel_width;
    const float* const row = plain + output * shape_.in_channels * positions;
    for (int64_t k = first; k < first + static_cast<int64_t>(sum.size()); ++k) {
      const float weight = row[k % shape_.in_channels * positions + k / shape_.in_channels];
      sum[static_cast<size_t>(k - first)] += static_cast<float>(factor) * weight;
    }
  }

  void put_column(const std::vector<float>& sum, int64_t lane, int64_t width, int64_t place, void* packed) const {
    for (int64_t k = 0; k < static_cast<int64_t>(sum.size()); ++k) {
      const float value = sum[static_cast<size_t>(k)];
      if (dtype_ == DataType::kFloat) {
        static_cast<float*>(packed)[place + k * width + lane] = value;
      } else {
        static_cast<c10::BFloat16*>(packed)[place + (k / 2 * width + lane) * 2 + k % 2] = c10::BFloat16(value);
      }
    }
  }

  const Options options_;
  const DataType dtype_;
  const StrassenShape shape_;
  StrassenPlan plan_;
  int64_t scratch_bytes_ = 0;
};

bool fits_strassen(const StrassenShape& s, const ConvolutionShape& whole, const ConvolutionKernel::Options& options) {
  constexpr int64_t kCuts = StrassenTable::kCuts;
  const bool inference = options.inference;
  const int64_t block = channel_block(), positions = s.kernel_height * s.kernel_width;
  const bool for_winograd = positions == 9 && s.kernel_height == 3 && s.stride_height == 1 && s.stride_width == 1 &&
                            s.dilation_height == 1 && s.dilation_width == 1;
  const bool pointwise = positions == 1 && s.stride_height == 1 && s.stride_width == 1 && s.top == 0 && s.left == 0 &&
                         s.in_height == s.out_height && s.in_width == s.out_width;
  const bool has_direction = inference ? options.direction == ConvolutionDirection::kForward
                                       : options.direction != ConvolutionDirection::kBackwardWeights;
  const bool has_type = whole.dtype == DataType::kFloat || (inference && isa() == Isa::kAvx512Bf16);
  const int64_t least_depth = inference ? kLeastPartDepth : kLeastTrainedPartDepth;
  const int64_t least_outputs = inference ? kLeastPartOutputs : kLeastTrainedPartOutputs;
  return has_direction && has_type && !options.exact && whole.groups == 1 && !whole.plain_input && !for_winograd &&
         (inference || pointwise) && s.in_channels % block == 0 && s.in_channels * positions % (block * kCuts) == 0 &&
         s.out_channels % (block * kCuts) == 0 && s.in_channels * positions / kCuts >= least_depth &&
         s.out_channels / kCuts >= least_outputs && s.out_height * s.out_width >= kLeastImagePixels &&
         s.batch * s.out_height * s.out_width >= kLeastBatchPixels;
}

}  // namespace

std::unique_ptr<ConvolutionKernel> make_strassen_convolution(const ConvolutionShape& s,
                                                             const ConvolutionKernel::Options& options) {
  StrassenShape shape = strassen_shape(s);
  if (options.direction == ConvolutionDirection::kBackwardData) std::swap(shape.in_channels, shape.out_channels);
  return fits_strassen(shape, s, options) ? std::make_unique<StrassenKernel>(shape, s.dtype, options) : nullptr;
}

}  // namespace trainyard::nn::cpu
