#include "trainyard/nn/cpu/convolution/patches/patch_convolution.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {
namespace {

constexpr int64_t kLeastPixels = 64;

// Returns the convolution of patches with a 1x1 window. Weights lie the same way for both.
ConvolutionShape of_patches(const ConvolutionShape& s) {
  ConvolutionShape patches{.batch = s.batch,
                           .in_channels = s.in_channels * s.kernel_height * s.kernel_width,
                           .out_channels = s.out_channels,
                           .bias = s.bias,
                           .dtype = s.dtype};
  patches.in_height = patches.out_height = s.out_height;
  patches.in_width = patches.out_width = s.out_width;
  return patches;
}

class PatchKernel : public ConvolutionKernel {
 public:
  PatchKernel(const ConvolutionShape& shape, std::unique_ptr<ConvolutionKernel> patches)
      : shape_(shape), patches_(std::move(patches)), name_(std::string("patches ") + patches_->implementation()) {}

  int64_t weights_bytes() const override { return patches_->weights_bytes(); }
  int64_t scratch_bytes() const override { return map_bytes() + patches_->scratch_bytes(); }
  const char* implementation() const override { return name_.c_str(); }
  bool hides_nan() const override { return patches_->hides_nan(); }
  bool multiplies_pairs() const override { return patches_->multiplies_pairs(); }

  void pack(const float* plain, void* packed) const override { patches_->pack(plain, packed); }
  void unpack(const void* packed, float* plain) const override { patches_->unpack(packed, plain); }

  void forward(const void* source, const void* weights, const float* bias, void* output, void* scratch) const override {
    rearrange(source, scratch);
    patches_->forward(scratch, weights, bias, output, behind_map(scratch));
  }
  void backward_data(const void* /*output_gradient*/, const void* /*weights*/, void* /*source_gradient*/,
                     void* /*scratch*/) const override {
    throw std::logic_error("a plain input has no gradient");
  }
  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* scratch) const override {
    rearrange(source, scratch);
    patches_->backward_weights(scratch, output_gradient, weights_gradient, bias_gradient, behind_map(scratch));
  }

 private:
  int64_t channels() const { return shape_.in_channels * shape_.kernel_height * shape_.kernel_width; }
  int64_t pixels() const { return shape_.out_height * shape_.out_width; }
  int64_t map_bytes() const {
    const int64_t bytes = shape_.batch * in_whole_blocks(channels()) * pixels() * size_of(shape_.dtype);
    return (bytes + 63) / 64 * 64;
  }
  void* behind_map(void* scratch) const { return static_cast<std::byte*>(scratch) + map_bytes(); }

  void rearrange(const void* source, void* map) const {
    if (shape_.dtype == DataType::kFloat) {
      rearrange_as(static_cast<const float*>(source), static_cast<float*>(map));
    } else {
      rearrange_as(static_cast<const uint16_t*>(source), static_cast<uint16_t*>(map));
    }
  }

  // From plain [N, C, H, W] to blocks of patch channels: [N][block][patch][lane].
  template <typename T>
  void rearrange_as(const T* source, T* map) const {
    const ConvolutionShape& s = shape_;
    const int64_t lanes = channel_block(), sample_elements = in_whole_blocks(channels()) * pixels();
    const int64_t rows = s.in_channels * s.kernel_height;
    if (channels() % lanes != 0) {
#pragma omp parallel for schedule(static)
      for (int64_t n = 0; n < s.batch; ++n) {
        std::fill_n(map + (n + 1) * sample_elements - pixels() * lanes, pixels() * lanes, T{});
      }
    }
    // A row of the window holds neighbouring pixels of the image, and neighbouring channels of the patch.
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t n = 0; n < s.batch; ++n) {
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t c = row / s.kernel_height, y = row % s.kernel_height, first = row * s.kernel_width;
        for (int64_t patch = 0; patch < pixels(); ++patch) {
          const int64_t top = patch / s.out_width * s.stride_height + y, left = patch % s.out_width * s.stride_width;
          const T* from = source + ((n * s.in_channels + c) * s.in_height + top) * s.in_width + left;
          for (int64_t channel = first; channel < first + s.kernel_width;) {
            const int64_t lane = channel % lanes, count = std::min(lanes - lane, first + s.kernel_width - channel);
            T* const to = map + n * sample_elements + (channel / lanes * pixels() + patch) * lanes + lane;
            std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
            from += count;
            channel += count;
          }
        }
      }
    }
  }

  ConvolutionShape shape_;
  std::unique_ptr<ConvolutionKernel> patches_;
  std::string name_;
};

}  // namespace

std::unique_ptr<ConvolutionKernel> make_patch_convolution(const ConvolutionShape& s,
                                                          const ConvolutionKernel::Options& options) {
  const bool disjoint = s.stride_height == s.kernel_height && s.stride_width == s.kernel_width;
  const bool inside = s.top == 0 && s.left == 0 && s.out_height * s.kernel_height <= s.in_height &&
                      s.out_width * s.kernel_width <= s.in_width;
  if (!s.plain_input || s.groups != 1 || s.dilation_height != 1 || s.dilation_width != 1 || !disjoint || !inside ||
      s.kernel_height * s.kernel_width < kLeastPixels || options.direction == ConvolutionDirection::kBackwardData) {
    return nullptr;
  }
  auto patches = ConvolutionKernel::make(of_patches(s), options);
  return patches == nullptr ? nullptr : std::make_unique<PatchKernel>(s, std::move(patches));
}

}  // namespace trainyard::nn::cpu
