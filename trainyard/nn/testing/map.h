// Helpers of the kernels' tests: maps of numbers in blocked layout, and each kernel in both compilations.
//
//   TRAINYARD_KERNEL_TEST(SumTest);
//   TYPED_TEST(SumTest, ...) { TypeParam::sum_forward({...}); }
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <cpuid.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {

// Whether the processor, unless it is limited, has the instruction that adds four products of bytes, for registers of
// `block` floats. By cpuid, for clang 14 has no name of AVX-VNNI.
inline bool has_byte_products(int64_t block) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool told = __get_cpuid_count(7, block == 8 ? 1 : 0, &eax, &ebx, &ecx, &edx) != 0;
  const bool has = block == 8 ? (eax & bit_AVXVNNI) != 0 : (ecx & bit_AVX512VNNI) != 0 && core::cpu_has_avx512();
  return told && has && core::cpu_isa_limit() == core::CpuIsaLimit::kNone;
}

#define TRAINYARD_CALL(function, argument)  \
  static void function(const argument& a) { \
    TRAINYARD_NAMESPACE::function(a);       \
  }
struct Avx2 {
  static constexpr const char* kName = "Avx2";
  static constexpr int64_t kBlock = 8;
  static bool runs() { return true; }
#define TRAINYARD_NAMESPACE avx2
  TRAINYARD_CPU_KERNELS(TRAINYARD_CALL)
#undef TRAINYARD_NAMESPACE
};
struct Avx512 {
  static constexpr const char* kName = "Avx512";
  static constexpr int64_t kBlock = 16;
  static bool runs() { return core::cpu_has_avx512(); }
#define TRAINYARD_NAMESPACE avx512
  TRAINYARD_CPU_KERNELS(TRAINYARD_CALL)
#undef TRAINYARD_NAMESPACE
};
#undef TRAINYARD_CALL

using Compilations = ::testing::Types<Avx2, Avx512>;
struct CompilationName {
  template <typename Kernels>
  static std::string GetName(int) {  // NOLINT(readability-identifier-naming): googletest's name
    return Kernels::kName;
  }
};

template <typename Kernels>
class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Kernels::runs()) GTEST_SKIP() << core::skip::kNeedsAvx512;
  }
  static MapShape shape(int64_t batch, int64_t channels, int64_t height = 1, int64_t width = 1) {
    return {batch, channels, height, width, Kernels::kBlock};
  }
  // Returns batches of 1 and 3; one lane, some, all, one more, several blocks; one piece of pixels and several; one
  // pixel.
  static std::vector<MapShape> shapes() {
    std::vector<MapShape> shapes;
    for (int64_t channels : {1, 3, 16, 17, 40}) shapes.push_back(shape(3, channels, 3, 5));
    shapes.push_back(shape(1, 17, 29, 37));
    shapes.push_back(shape(3, 40));
    return shapes;
  }
};

// Declares a test suite that runs with the kernels of each compilation.
// NOLINTBEGIN(bugprone-macro-parentheses): a class that is declared has no parentheses around its name.
#define TRAINYARD_KERNEL_TEST(Suite)           \
  template <typename Kernels>                  \
  class Suite : public KernelTest<Kernels> {}; \
  TYPED_TEST_SUITE(Suite, Compilations, CompilationName)
// NOLINTEND(bugprone-macro-parentheses)

constexpr DataType kDataTypes[] = {DataType::kFloat, DataType::kBfloat16};

// The value that a map of `dtype` keeps of `value`.
inline float rounded_to(DataType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DataType::kFloat || std::isnan(single)) return single;
  const auto bits = std::bit_cast<uint32_t>(single);
  return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U);
}

// A map, or another array of bytes, between two fences that detect writes outside of it. Aligned as the plan's memory.
class TestBytes {
 public:
  explicit TestBytes(int64_t size)
      : size_(static_cast<size_t>(size)), lines_((size_ + 2 * kFence + sizeof(Line) - 1) / sizeof(Line)) {
    std::memset(begin(), kFenceByte, kFence);
    std::memset(data(), kUnwritten, size_);
    std::memset(data() + size_, kFenceByte, kFence);
  }
  uint8_t* data() { return begin() + kFence; }
  const uint8_t* data() const { return lines_.front().bytes + kFence; }
  bool fences_hold() const {
    for (size_t i = 0; i < kFence; ++i) {
      if (lines_.front().bytes[i] != kFenceByte || data()[size_ + i] != kFenceByte) return false;
    }
    return true;
  }
  bool operator==(const TestBytes& other) const {
    return size_ == other.size_ && std::memcmp(data(), other.data(), size_) == 0;
  }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  static constexpr size_t kFence = 128;
  static constexpr uint8_t kFenceByte = 0xA5, kUnwritten = 0xFF;  // unwritten floats are NaN

  uint8_t* begin() { return lines_.front().bytes; }

  size_t size_;
  std::vector<Line> lines_;
};

class TestMap {
 public:
  // Unwritten: all NaN, pad lanes too.
  TestMap(const MapShape& shape, DataType dtype)
      : shape_(shape), dtype_(dtype), bytes_(shape.elements() * size_of(dtype)) {}
  // Numbers between -2 and 2 that `seed` decides (and zeros in pad lanes), as `dtype` keeps them.
  static TestMap random(const MapShape& shape, DataType dtype, uint64_t seed) {
    core::RandomStream stream(seed, "map_for_test", {});
    return of(shape, dtype, [&](auto...) { return stream.uniform() * 4 - 2; });
  }
  // value(sample, channel, row, column)
  template <typename Value>
  static TestMap of(const MapShape& shape, DataType dtype, Value value) {
    TestMap map(shape, dtype);
    std::memset(map.data(), 0, static_cast<size_t>(shape.elements() * size_of(dtype)));
    map.each([&](int64_t n, int64_t c, int64_t y, int64_t x) { map.set(n, c, y, x, value(n, c, y, x)); });
    return map;
  }

  const MapShape& shape() const { return shape_; }
  DataType dtype() const { return dtype_; }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }

  double at(int64_t n, int64_t c, int64_t y = 0, int64_t x = 0) const { return element(index(n, c, y, x)); }
  double element(int64_t i) const {
    const uint8_t* const place = bytes_.data() + i * size_of(dtype_);
    uint32_t bits = 0;
    if (dtype_ == DataType::kFloat) {
      std::memcpy(&bits, place, 4);
    } else {
      uint16_t upper = 0;
      std::memcpy(&upper, place, 2);
      bits = static_cast<uint32_t>(upper) << 16;
    }
    return std::bit_cast<float>(bits);
  }
  void set(int64_t n, int64_t c, int64_t y, int64_t x, double value) { set_element(index(n, c, y, x), value); }
  void set_element(int64_t i, double value) {
    uint8_t* const place = bytes_.data() + i * size_of(dtype_);
    const auto bits = std::bit_cast<uint32_t>(rounded_to(dtype_, value));
    const auto upper = static_cast<uint16_t>(bits >> 16);
    dtype_ == DataType::kFloat ? std::memcpy(place, &bits, 4) : std::memcpy(place, &upper, 2);
  }
  // In elements; of pad lanes, too (c < shape().padded_channels()).
  int64_t index(int64_t n, int64_t c, int64_t y, int64_t x) const {
    const int64_t plane = n * shape_.blocks() + c / shape_.block;
    return ((plane * shape_.height + y) * shape_.width + x) * shape_.block + c % shape_.block;
  }

  // use(sample, channel, row, column), without pad lanes.
  template <typename Use>
  void each(Use use) const {
    for (int64_t n = 0; n < shape_.batch; ++n) {
      for (int64_t c = 0; c < shape_.channels; ++c) {
        for (int64_t y = 0; y < shape_.height; ++y) {
          for (int64_t x = 0; x < shape_.width; ++x) use(n, c, y, x);
        }
      }
    }
  }

  // Expects expected(sample, channel, row, column) to `tolerance` (relative for numbers above 1) and what rounding to
  // the map's dtype costs, pad lanes of only zero bits, and nothing written outside of the map.
  template <typename Expected>
  void expect(Expected expected, double tolerance = 1e-6) const {
    int wrong = 0;
    each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
      const double want = expected(n, c, y, x), have = at(n, c, y, x);
      const double rounding = dtype_ == DataType::kFloat ? 0 : std::abs(want) / 256;
      const bool near = std::abs(have - want) <= tolerance * std::max(1.0, std::abs(want)) + rounding;
      if (near || have == want || (std::isnan(have) && std::isnan(want)) || ++wrong > 3) return;
      ADD_FAILURE() << "at (" << n << ", " << c << ", " << y << ", " << x << "): " << have << " instead of " << want;
    });
    EXPECT_LE(wrong, 3) << "values are wrong altogether";
    expect_clean();
  }
  void expect_clean() const {
    EXPECT_TRUE(bytes_.fences_hold()) << "written beside the map";
    int dirty = 0;
    for (int64_t n = 0; n < shape_.batch; ++n) {
      for (int64_t c = shape_.channels; c < shape_.padded_channels(); ++c) {
        for (int64_t p = 0; p < shape_.pixels(); ++p) {
          const uint8_t* const place =
              bytes_.data() + index(n, c, p / shape_.width, p % shape_.width) * size_of(dtype_);
          for (int64_t i = 0; i < size_of(dtype_); ++i) dirty += place[i] != 0;
        }
      }
    }
    EXPECT_EQ(dirty, 0) << "bytes of pad lanes are not zero";
  }
  bool operator==(const TestMap& other) const { return bytes_ == other.bytes_; }

 private:
  MapShape shape_;
  DataType dtype_;
  TestBytes bytes_;
};

// Floats between -2 and 2 that `seed` decides.
inline std::vector<float> random_floats(int64_t count, uint64_t seed) {
  core::RandomStream stream(seed, "random_floats", {});
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(stream.uniform() * 4 - 2);
  return values;
}

// What `run` returns with teams of 1 and of 2 threads must be the same bits.
template <typename Run>
void expect_same_for_any_threads(Run run) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto one = run();
  omp_set_num_threads(2);
  const auto two = run();
  omp_set_num_threads(before);
  EXPECT_TRUE(one == two) << "the bits depend on the number of threads";
}

// Calls a backward kernel twice, into `fresh` and on top of what `added` holds, and compares both with `expected`. `a`
// points to `fresh`.
template <typename Arguments, typename Expected>
void expect_fresh_and_added(void (*kernel)(const Arguments&), Arguments& a, TestMap& fresh, TestMap& added,
                            const Expected& expected, double tolerance) {
  const TestMap before = added;
  kernel(a);
  fresh.expect(expected, tolerance);
  if constexpr (requires { a.input_gradient; }) {
    a.input_gradient = added.data();
  } else {
    a.output = added.data();
  }
  a.accumulate = true;
  kernel(a);
  added.expect([&](auto... at) { return before.at(at...) + expected(at...); }, tolerance);
}

}  // namespace trainyard::nn::cpu
