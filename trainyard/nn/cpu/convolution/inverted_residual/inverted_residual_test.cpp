// Inverted residual blocks at once, against the three convolutions by their definition, in double.

#include "trainyard/nn/cpu/convolution/inverted_residual/inverted_residual.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/guarded_memory.h"

namespace trainyard::nn::cpu::inverted_residual_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::string name;
  InvertedResidualShape shape;
  bool adds = false;
  int threads = 2;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

InvertedResidualShape block(int64_t batch, int64_t in, int64_t hidden, int64_t out, int64_t height, int64_t width,
                            int64_t stride = 1) {
  return {.batch = batch,
          .in_channels = in,
          .hidden_channels = hidden,
          .out_channels = out,
          .in_height = height,
          .in_width = width,
          .out_height = (height - 1) / stride + 1,
          .out_width = (width - 1) / stride + 1,
          .stride = stride,
          .top = 1,
          .left = 1,
          .expanded = {0, 6},
          .convolved = {0, 6}};
}

// TensorFlow's padding at stride 2 and an even size: below and to the right alone.
InvertedResidualShape padded_behind(InvertedResidualShape shape) {
  shape.top = shape.left = 0;
  return shape;
}

InvertedResidualShape without_expansion(InvertedResidualShape shape) {
  shape.expands = false;
  shape.in_channels = shape.hidden_channels;
  return shape;
}

InvertedResidualShape with_relu(InvertedResidualShape shape) {
  shape.expanded = shape.convolved = {};
  shape.projected = {0, kInfinity};
  return shape;
}

class Memory {
 public:
  void* zeros(int64_t bytes) { return blocks_.emplace_back(at::zeros({bytes}, at::kByte)).data_ptr(); }

 private:
  std::vector<at::Tensor> blocks_;
};

// A map in blocks of channels, of floats or numbers of 16 bits.
class Map {
 public:
  Map(Memory& memory, DataType dtype, int64_t channels, int64_t pixels, int64_t batch)
      : dtype_(dtype), pixels_(pixels), blocks_((channels + channel_block() - 1) / channel_block()) {
    bytes_ = batch * blocks_ * channel_block() * pixels * size_of(dtype);
    data_ = memory.zeros(bytes_);
  }
  void* data() const { return data_; }
  int64_t padded_channels() const { return blocks_ * channel_block(); }
  double get(int64_t n, int64_t c, int64_t p) const {
    const int64_t at = place(n, c, p);
    return dtype_ == DataType::kFloat ? static_cast<const float*>(data_)[at]
                                      : static_cast<float>(static_cast<const c10::BFloat16*>(data_)[at]);
  }
  void set(int64_t n, int64_t c, int64_t p, float value) {
    const int64_t at = place(n, c, p);
    if (dtype_ == DataType::kFloat) {
      static_cast<float*>(data_)[at] = value;
    } else {
      static_cast<c10::BFloat16*>(data_)[at] = c10::BFloat16(value);
    }
  }
  std::vector<char> bytes() const {
    const auto* const from = static_cast<const char*>(data_);
    return {from, from + bytes_};
  }
  // Sets all memory to NaN, pads too.
  void spoil() { std::memset(data_, 0xFF, static_cast<size_t>(bytes_)); }

 private:
  int64_t place(int64_t n, int64_t c, int64_t p) const {
    return ((n * blocks_ + c / channel_block()) * pixels_ + p) * channel_block() + c % channel_block();
  }
  DataType dtype_;
  int64_t pixels_, blocks_, bytes_;
  void* data_;
};

class Block {
 public:
  Block(const InvertedResidualShape& s, DataType dtype, bool adds)
      : s_(s),
        dtype_(dtype),
        source(memory_, dtype, s.in_channels, s.in_height * s.in_width, s.batch),
        residual_(memory_, dtype, s.out_channels, s.out_height * s.out_width, s.batch),
        output(memory_, dtype, s.out_channels, s.out_height * s.out_width, s.batch),
        adds_(adds) {
    fill(source, s.in_channels, s.in_height * s.in_width);
    fill(residual_, s.out_channels, s.out_height * s.out_width);
    expand_ = numbers(s.in_channels * s.hidden_channels, 1);
    depthwise_ = numbers(s.hidden_channels * 9, 1);
    project_ = numbers(s.hidden_channels * s.out_channels, 0.25F);
    biases_ = {padded(s.hidden_channels), padded(s.hidden_channels), padded(s.out_channels)};
  }

  void run(int threads) {
    output.spoil();
    const InvertedResidualPlan plan = plan_inverted_residual(s_, dtype_, threads);
    const auto packed = [&](const std::vector<float>& plain, int64_t in, int64_t out) {
      void* const to = memory_.zeros(pointwise_elements(in, out) * size_of(dtype_));
      pack_pointwise(plain.data(), in, out, dtype_, to);
      return to;
    };
    auto* const depthwise =
        static_cast<float*>(memory_.zeros(depthwise_elements(s_.hidden_channels) * int64_t{sizeof(float)}));
    pack_depthwise(depthwise_.data(), s_.hidden_channels, depthwise);
    const int64_t bytes = plan.scratch_bytes(threads);
    void* const scratch = memory_.zeros(bytes);
    std::memset(scratch, 0xFF, static_cast<size_t>(bytes));  // NaN: nothing is read that was not written
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    inverted_residual({.shape = s_,
                       .plan = plan,
                       .source = source.data(),
                       .expand = s_.expands ? packed(expand_, s_.in_channels, s_.hidden_channels) : nullptr,
                       .expand_bias = biases_[0].data(),
                       .depthwise = depthwise,
                       .depthwise_bias = biases_[1].data(),
                       .project = packed(project_, s_.hidden_channels, s_.out_channels),
                       .project_bias = biases_[2].data(),
                       .residual = adds_ ? residual_.data() : nullptr,
                       .output = output.data(),
                       .scratch = scratch},
                      dtype_);
    omp_set_num_threads(before);
  }

  // Returns the block's output [batch][channel][pixel] by the definition.
  std::vector<double> expected() const {
    const auto limited = [](double value, const InvertedResidualShape::Limits& limits) {
      if (value < limits.least) return static_cast<double>(limits.least);
      return value > limits.most ? static_cast<double>(limits.most) : value;
    };
    const int64_t in = s_.in_height * s_.in_width, out = s_.out_height * s_.out_width;
    std::vector<double> result;
    for (int64_t n = 0; n < s_.batch; ++n) {
      std::vector<double> convolved;
      for (int64_t h = 0; h < s_.hidden_channels; ++h) {
        std::vector<double> expanded;
        for (int64_t p = 0; p < in; ++p) {
          double sum = s_.expands ? biases_[0][at(h)] : source.get(n, h, p);
          for (int64_t c = 0; s_.expands && c < s_.in_channels; ++c) {
            sum += expand_[at(h * s_.in_channels + c)] * source.get(n, c, p);
          }
          expanded.push_back(s_.expands ? limited(sum, s_.expanded) : sum);
        }
        for (int64_t p = 0; p < out; ++p) {
          double sum = biases_[1][at(h)];
          for (int64_t tap = 0; tap < 9; ++tap) {
            const int64_t y = p / s_.out_width * s_.stride - s_.top + tap / 3,
                          x = p % s_.out_width * s_.stride - s_.left + tap % 3;
            if (y < 0 || y >= s_.in_height || x < 0 || x >= s_.in_width) continue;
            sum += depthwise_[at(h * 9 + tap)] * expanded[at(y * s_.in_width + x)];
          }
          convolved.push_back(limited(sum, s_.convolved));
        }
      }
      for (int64_t o = 0; o < s_.out_channels; ++o) {
        for (int64_t p = 0; p < out; ++p) {
          double sum = biases_[2][at(o)] + (adds_ ? residual_.get(n, o, p) : 0);
          for (int64_t h = 0; h < s_.hidden_channels; ++h) {
            sum += project_[at(o * s_.hidden_channels + h)] * convolved[at(h * out + p)];
          }
          result.push_back(limited(sum, s_.projected));
        }
      }
    }
    return result;
  }

 private:
  Memory memory_;
  InvertedResidualShape s_;
  DataType dtype_;

 public:
  Map source;

 private:
  Map residual_;

 public:
  Map output;

 private:
  static size_t at(int64_t index) { return static_cast<size_t>(index); }

  float number() { return static_cast<float>(random_.uniform() * 2 - 1); }
  // Returns numbers that are rounded to what the weights of 1x1 convolutions are packed as.
  std::vector<float> numbers(int64_t count, float scale) {
    std::vector<float> result;
    for (int64_t i = 0; i < count; ++i) {
      const float value = number() * scale;
      result.push_back(dtype_ == DataType::kFloat ? value : static_cast<float>(c10::BFloat16(value)));
    }
    return result;
  }
  std::vector<float> padded(int64_t channels) {
    std::vector<float> result = numbers(channels, 1);
    result.resize(at((channels + channel_block() - 1) / channel_block() * channel_block()));
    return result;
  }
  void fill(Map& map, int64_t channels, int64_t pixels) {
    for (int64_t n = 0; n < s_.batch; ++n) {
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t p = 0; p < pixels; ++p) map.set(n, c, p, 3 * number());
      }
    }
  }

  core::RandomStream random_{5, "inverted residual"};
  bool adds_;
  std::vector<float> expand_, depthwise_, project_;
  std::vector<std::vector<float>> biases_;
};

// Maps that channels are shared out of, and maps that are cut into bands; all sizes of the last tile of a row; channels
// that fill no block; both strides, and paddings.
std::vector<Case> cases() {
  std::vector<Case> all{
      {"Shared", block(1, 20, 70, 20, 9, 10), true},
      {"SharedWithStride", block(1, 24, 70, 21, 9, 11, 2)},
      {"SharedByThree", block(2, 24, 150, 40, 7, 7), false, 3},
      {"PaddedBehind", padded_behind(block(1, 19, 33, 8, 10, 12, 2))},
      {"PaddedBehindWithOneRow", padded_behind(block(3, 19, 33, 8, 2, 2, 2))},
      {"Bands", block(1, 16, 40, 24, 30, 28)},
      {"BandsWithStride", block(1, 16, 40, 24, 57, 33, 2)},
      {"BandsOfThreeThreads", block(1, 16, 40, 16, 31, 29), true, 3},
      {"RowsThatTheRingHoldsFewOf", block(1, 3, 20, 5, 12, 230)},
      {"RowsThatTheRingHoldsFewOfWithStride", block(1, 3, 20, 5, 12, 230, 2)},
      {"ManyImages", block(5, 17, 48, 17, 8, 8), true, 2},
      {"OneThread", block(2, 17, 48, 17, 8, 8), true, 1},
      {"OnePixel", block(1, 17, 48, 17, 1, 1), true},
      {"NoExpansion", without_expansion(block(2, 0, 40, 24, 13, 15))},
      {"NoExpansionWithStride", without_expansion(block(4, 0, 24, 24, 15, 18, 2)), true},
      {"Relu", with_relu(block(2, 20, 40, 20, 9, 9)), true},
  };
  for (int64_t width = 1; width <= 16; ++width) {
    all.push_back({"Width" + std::to_string(width), block(1, 8, 24, 8, 3, width)});
  }
  return all;
}

class InvertedResidual : public ::testing::TestWithParam<Case> {
 protected:
  static void expect_agreement(DataType dtype, double bound) {
    const GuardedMemory guarded;
    EXPECT_LE(distance(dtype), bound);  // false for NaN
    EXPECT_EQ(guarded.broken(), 0) << "writes outside of its memory";
  }

 private:
  // Returns how far the kernel's output is from the definition's; infinity if pad lanes are not zero.
  static double distance(DataType dtype) {
    const Case& c = GetParam();
    Block tested(c.shape, dtype, c.adds);
    tested.run(c.threads);
    const std::vector<double> expected = tested.expected();
    double error = 0, norm = 0;
    size_t i = 0;
    for (int64_t n = 0; n < c.shape.batch; ++n) {
      for (int64_t o = 0; o < tested.output.padded_channels(); ++o) {
        for (int64_t p = 0; p < c.shape.out_height * c.shape.out_width; ++p) {
          const double value = tested.output.get(n, o, p);
          if (o >= c.shape.out_channels) {
            if (value != 0) return kInfinity;
            continue;
          }
          error += std::pow(value - expected[i], 2);
          norm += std::pow(expected[i++], 2);
        }
      }
    }
    return std::sqrt(error / norm);
  }
};

TEST_P(InvertedResidual, AgreesWithTheDefinition) {
  if (!has_inverted_residual(DataType::kFloat)) GTEST_SKIP() << core::skip::kNeedsAvx512;
  expect_agreement(DataType::kFloat, 1e-6);
}

// What the depthwise convolution gives and the output are rounded to 8 bits.
TEST_P(InvertedResidual, AgreesWithTheDefinitionInBfloat16) {
  if (!has_inverted_residual(DataType::kBfloat16)) GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  expect_agreement(DataType::kBfloat16, 4e-3);
}

INSTANTIATE_TEST_SUITE_P(Cpu, InvertedResidual, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

std::vector<DataType> types() {
  std::vector<DataType> types;
  for (const DataType dtype : {DataType::kFloat, DataType::kBfloat16}) {
    if (has_inverted_residual(dtype)) types.push_back(dtype);
  }
  return types;
}

struct Planned {
  InvertedResidualShape shape;
  int64_t threads;
  InvertedResidualPlan plan;
  DataType dtype = DataType::kFloat;
};

// For blocks of 16 channels.
TEST(InvertedResidualKernel, DividesTheWorkByTheSizesOfMaps) {
  if (types().empty()) GTEST_SKIP() << core::skip::kNeedsAvx512;
  for (const auto& [shape, threads, wanted, dtype] : {
           // Shared: at most 14 x 14 pixels, fewer than two images a thread, and several threads.
           Planned{block(1, 20, 70, 20, 14, 14), 2, {true, 1, 16, 33792, 62720}},
           Planned{block(3, 20, 70, 20, 14, 14), 2, {true, 1, 16, 33792, 188160}},
           Planned{block(4, 20, 70, 20, 14, 14), 2, {false, 1, 16, 96512, 0}},
           Planned{block(1, 20, 70, 20, 14, 14), 1, {false, 1, 16, 96512, 0}},
           Planned{block(1, 20, 70, 20, 14, 15), 2, {false, 2, 9, 54272, 0}},
           // Bands whose hidden maps fit a cache, as many for each thread.
           Planned{block(1, 16, 40, 24, 30, 28), 2, {false, 2, 17, 147840, 0}},
           Planned{block(1, 8, 96, 8, 112, 112), 1, {false, 13, 4, 452736, 0}},
           Planned{block(1, 8, 96, 8, 112, 112), 2, {false, 14, 4, 409728, 0}},
           Planned{block(1, 8, 96, 8, 112, 112), 3, {false, 15, 4, 409728, 0}},
           Planned{block(15, 8, 16, 8, 15, 15), 2, {false, 2, 10, 30528, 0}},
           Planned{block(17, 8, 16, 8, 15, 15), 2, {false, 1, 17, 52480, 0}},
           // A single row, a stride, rows of which a cache holds few, and memory in whole lines.
           Planned{block(1, 8, 16, 8, 1, 300), 2, {false, 1, 3, 154496, 0}},
           Planned{block(1, 16, 40, 24, 57, 33, 2), 2, {false, 2, 14, 113920, 0}},
           Planned{block(1, 3, 20, 5, 12, 230), 2, {false, 2, 4, 310272, 0}},
           Planned{block(1, 3, 20, 5, 12, 230, 2), 2, {false, 2, 5, 206784, 0}},
           Planned{block(5, 8, 16, 8, 5, 7), 2, {false, 2, 5, 7040, 0}, DataType::kBfloat16},
           Planned{block(1, 8, 16, 8, 7, 7), 2, {true, 1, 9, 10944, 1600}, DataType::kBfloat16},
       }) {
    SCOPED_TRACE(::testing::Message() << shape.batch << " x " << shape.in_height << " x " << shape.in_width << ", "
                                      << threads << " threads");
    const InvertedResidualPlan plan = plan_inverted_residual(shape, dtype, threads);
    EXPECT_EQ(plan.shared, wanted.shared);
    EXPECT_EQ(plan.bands, wanted.bands);
    EXPECT_EQ(plan.ring_rows, wanted.ring_rows);
    EXPECT_EQ(plan.thread_bytes, wanted.thread_bytes);
    EXPECT_EQ(plan.shared_bytes, wanted.shared_bytes);
  }
}

TEST(InvertedResidualKernel, GivesTheSameBitsForAnyThreads) {
  if (types().empty()) GTEST_SKIP() << core::skip::kNeedsAvx512;
  for (const DataType dtype : types()) {
    for (const InvertedResidualShape& shape :
         {block(1, 20, 70, 20, 9, 10), block(1, 16, 40, 24, 30, 28), block(3, 17, 48, 17, 15, 16, 2)}) {
      Block tested(shape, dtype, false);
      tested.run(1);
      const std::vector<char> alone = tested.output.bytes();
      for (const int threads : {2, 3, 4}) {
        tested.run(threads);
        EXPECT_EQ(tested.output.bytes(), alone) << threads << " threads";
      }
    }
  }
}

// NaN reaches the outputs whose windows it is in, and no others; nor do pad lanes make NaN of infinity times zero.
TEST(InvertedResidualKernel, SendsWhatIsNotFiniteWhereTheDefinitionDoes) {
  if (types().empty()) GTEST_SKIP() << core::skip::kNeedsAvx512;
  for (const DataType dtype : types()) {
    for (const float spoiled : {kNan, kInfinity}) {
      const InvertedResidualShape shape = block(1, 20, 70, 21, 9, 10);
      Block tested(shape, dtype, false);
      tested.run(2);
      std::vector<double> finite;
      for (int64_t p = 0; p < 90; ++p) finite.push_back(tested.output.get(0, 3, p));
      tested.source.set(0, 7, 4 * 10 + 5, spoiled);
      tested.run(2);
      for (int64_t o = 0; o < tested.output.padded_channels(); ++o) {
        for (int64_t p = 0; p < 90; ++p) {
          const double value = tested.output.get(0, o, p);
          const bool reached = std::abs(p / 10 - 4) <= 1 && std::abs(p % 10 - 5) <= 1;
          if (o >= shape.out_channels) {
            EXPECT_EQ(value, 0);
          } else if (std::isnan(spoiled)) {
            EXPECT_EQ(std::isnan(value), reached) << o << " " << p;
          } else {
            EXPECT_TRUE(std::isfinite(value)) << "the limits take infinity away";
          }
          if (o == 3 && !reached) {
            EXPECT_EQ(value, finite[static_cast<size_t>(p)]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::inverted_residual_test
