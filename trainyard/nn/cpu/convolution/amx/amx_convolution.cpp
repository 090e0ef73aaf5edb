#include "trainyard/nn/cpu/convolution/amx/amx_convolution.h"

#include <algorithm>
#include <vector>

#include "trainyard/nn/cpu/convolution/amx/amx.h"
#include "trainyard/nn/cpu/convolution/own_kernel.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {
namespace {

bool can_use_amx(const ConvolutionShape& s, const ConvolutionKernel::Options& options) {
  const auto fits = [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t before,
                       int64_t after) {
    return in > 0 && out > 0 && before >= 0 && (out - 1) * stride + dilation * (kernel - 1) + 1 == in + before + after;
  };
  // Windows of images are read row by row: they are narrow, and undilated.
  const bool image = !s.plain_input || (options.direction != ConvolutionDirection::kBackwardData &&
                                        s.dilation_width == 1 && s.kernel_width * s.in_channels <= 64);
  return has_amx() && s.dtype == DataType::kBfloat16 && image && s.groups == 1 && s.batch > 0 &&
         fits(s.in_height, s.out_height, s.kernel_height, s.stride_height, s.dilation_height, s.top, s.bottom) &&
         fits(s.in_width, s.out_width, s.kernel_width, s.stride_width, s.dilation_width, s.left, s.right) &&
         (options.activation == UnitActivation::kNone || options.activation == UnitActivation::kRelu);
}

// The quotient rounded down.
int64_t floor_of(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

int64_t blocks_of(int64_t channels) {
  return (channels + 15) / 16;
}

// One dimension of the plane: places of the window, each with the phase that it is in and how far from an output.
struct Axis {
  struct Place {
    int64_t input_phase = 0, output_phase = 0, shift = 0;
  };
  std::vector<Place> places;
  int64_t input_phases = 1, output_phases = 1;
  int64_t count = 0;  // pixels of the largest output phase
  int64_t first = 0, reach = 0;

  void measure() {
    first = places[0].shift;
    int64_t last = first;
    for (const Place& place : places) {
      first = std::min(first, place.shift);
      last = std::max(last, place.shift);
    }
    reach = last - first;
  }
};

// Output pixel j reads input pixel j * stride + place * dilation - before, which is pixel j + shift of a phase.
Axis forward_axis(int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t out) {
  Axis axis{.input_phases = stride, .count = out};
  for (int64_t k = 0; k < kernel; ++k) {
    const int64_t at = k * dilation - before, shift = floor_of(at, stride);
    axis.places.push_back({.input_phase = at - shift * stride, .shift = shift});
  }
  axis.measure();
  return axis;
}

// Pixel phase + j * stride of the input is read by output (phase + before - place * dilation) / stride + j, where that
// is a whole number.
Axis backward_axis(int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t in) {
  Axis axis{.output_phases = stride, .count = (in + stride - 1) / stride};
  for (int64_t k = 0; k < kernel; ++k) {
    const int64_t at = k * dilation - before, whole = floor_of(at, stride);
    axis.places.push_back({.output_phase = at - whole * stride, .shift = -whole});
  }
  axis.measure();
  return axis;
}

// The axis of an image, for which a window's row is one pixel.
Axis image_axis(int64_t out) {
  Axis axis{.places = {{}}, .count = out};
  axis.measure();
  return axis;
}

// Geometry with the lists that it points to.
class AmxPlan {
 public:
  AmxPlan(const ConvolutionShape& s, bool backward_data) {
    const auto axis = [&](int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t in, int64_t out) {
      return backward_data ? backward_axis(kernel, stride, dilation, before, in)
                           : forward_axis(kernel, stride, dilation, before, out);
    };
    const Axis y = axis(s.kernel_height, s.stride_height, s.dilation_height, s.top, s.in_height, s.out_height);
    const Axis x = s.plain_input
                       ? image_axis(s.out_width)
                       : axis(s.kernel_width, s.stride_width, s.dilation_width, s.left, s.in_width, s.out_width);
    amx::Geometry& g = geometry_;
    g.batch = s.batch;
    g.in_channels = backward_data ? s.out_channels : s.in_channels;
    g.out_channels = backward_data ? s.in_channels : s.out_channels;
    g.in_blocks = blocks_of(g.in_channels);
    g.out_blocks = blocks_of(g.out_channels);
    g.in_height = backward_data ? s.out_height : s.in_height;
    g.in_width = backward_data ? s.out_width : s.in_width;
    g.out_height = backward_data ? s.in_height : s.out_height;
    g.out_width = backward_data ? s.in_width : s.out_width;
    g.in_step_y = y.input_phases;
    g.in_step_x = x.input_phases;
    g.out_step_y = y.output_phases;
    g.out_step_x = x.output_phases;
    g.rows = y.count;
    g.columns = x.count;
    g.first_row = y.first;
    g.first_column = x.first;
    g.reach_rows = y.reach;
    g.reach_columns = x.reach;
    g.window = s.kernel_height * s.kernel_width;
    if (s.plain_input) {
      g.image_channels = s.in_channels;
      g.image_window = s.kernel_width;
      g.image_width = s.in_width;
      g.image_left = s.left;
      g.image_step = s.stride_width;
      g.in_channels = s.in_channels * s.kernel_width;
      g.in_blocks = blocks_of(g.in_channels);
      g.in_width = s.out_width;
      g.window = s.kernel_height;
    }
    list_input_phases(y, x);
    g.pitch = g.columns + g.reach_columns - shared_zeros();
    list_taps(y, x);
    g.in_phases = in_phases_.data();
    g.in_phase_count = static_cast<int64_t>(in_phases_.size());
    g.out_phases = out_phases_.data();
    g.out_phase_count = static_cast<int64_t>(out_phases_.size());
    g.taps = taps_.data();
  }
  AmxPlan(const AmxPlan&) = delete;
  AmxPlan& operator=(const AmxPlan&) = delete;
  ~AmxPlan() = default;

  const amx::Geometry& geometry() const { return geometry_; }

 private:
  // Lists the phases that some place of the window reads.
  void list_input_phases(const Axis& y, const Axis& x) {
    for (int64_t row = 0; row < y.input_phases; ++row) {
      for (int64_t column = 0; column < x.input_phases; ++column) {
        const auto reads = [](const Axis& axis, int64_t phase) {
          return std::any_of(axis.places.begin(), axis.places.end(),
                             [&](const Axis::Place& place) { return place.input_phase == phase; });
        };
        if (reads(y, row) && reads(x, column)) in_phases_.push_back({.row = row, .column = column});
      }
    }
  }

  // Returns how many of the zeros behind a row serve as those before the next one.
  int64_t shared_zeros() const {
    const amx::Geometry& g = geometry_;
    int64_t shared = std::min(std::max<int64_t>(-g.first_column, 0), g.reach_columns);
    for (const amx::Phase& phase : in_phases_) {
      const int64_t there = (g.in_width - phase.column + g.in_step_x - 1) / g.in_step_x;
      const int64_t needed = g.columns + g.first_column + g.reach_columns;
      shared = std::min(shared, std::max<int64_t>(needed - there, 0));
    }
    return shared;
  }

  void list_taps(const Axis& y, const Axis& x) {
    const amx::Geometry& g = geometry_;
    for (int64_t row = 0; row < y.output_phases; ++row) {
      for (int64_t column = 0; column < x.output_phases; ++column) {
        amx::Phase phase{.row = row, .column = column, .first_tap = static_cast<int64_t>(taps_.size())};
        for (size_t i = 0; i < y.places.size(); ++i) {
          for (size_t j = 0; j < x.places.size(); ++j) {
            if (y.places[i].output_phase != row || x.places[j].output_phase != column) continue;
            const auto from = std::find_if(in_phases_.begin(), in_phases_.end(), [&](const amx::Phase& in) {
              return in.row == y.places[i].input_phase && in.column == x.places[j].input_phase;
            });
            taps_.push_back(
                {.phase = from - in_phases_.begin(),
                 .distance = (y.places[i].shift - g.first_row) * g.pitch + (x.places[j].shift - g.first_column),
                 .place = static_cast<int64_t>(i * x.places.size() + j)});
          }
        }
        phase.taps = static_cast<int64_t>(taps_.size()) - phase.first_tap;
        out_phases_.push_back(phase);
      }
    }
  }

  amx::Geometry geometry_;
  std::vector<amx::Phase> in_phases_, out_phases_;
  std::vector<amx::Tap> taps_;
};

class AmxKernel : public OwnKernel<amx::forward, amx::backward_weights> {
 public:
  AmxKernel(const ConvolutionShape& shape, const Options& options)
      : OwnKernel(shape, options, {}), plan_(shape, options.direction == ConvolutionDirection::kBackwardData) {
    shape_ = plan_.geometry();
  }

  int64_t weights_bytes() const override {
    return of_weights() ? amx::gradient_bytes(shape_) : amx::weights_bytes(shape_);
  }
  int64_t scratch_bytes() const override {
    return of_weights() ? amx::backward_weights_scratch_bytes(shape_, threads_)
                        : amx::forward_scratch_bytes(shape_, threads_);
  }
  const char* implementation() const override { return "amx"; }
  // The gradient of weights sums over the pixels between rows, too, where output gradients are zero.
  bool multiplies_pairs() const override { return of_weights(); }

  void pack(const float* plain, void* packed) const override {
    amx::pack({.geometry = shape_,
               .of_backward = is(ConvolutionDirection::kBackwardData),
               .plain = plain,
               .packed = packed,
               .threads = threads_});
  }
  void unpack(const void* packed, float* plain) const override {
    amx::unpack(
        {.geometry = shape_, .gradient = static_cast<const float*>(packed), .plain = plain, .threads = threads_});
  }

 private:
  bool of_weights() const { return is(ConvolutionDirection::kBackwardWeights); }

  AmxPlan plan_;  // which the lists of the shape belong to
};

}  // namespace

std::unique_ptr<ConvolutionKernel> make_amx_convolution(const ConvolutionShape& shape,
                                                        const ConvolutionKernel::Options& options) {
  if (options.algorithm != ConvolutionAlgorithm::kAmx || !can_use_amx(shape, options)) return nullptr;
  return std::make_unique<AmxKernel>(shape, options);
}

}  // namespace trainyard::nn::cpu
