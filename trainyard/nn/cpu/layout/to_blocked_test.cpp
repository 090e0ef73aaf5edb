#include <limits>

#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::to_blocked_test {
namespace {

template <typename Kernels>
class ToBlockedTest : public KernelTest<Kernels> {
 protected:
  static std::vector<MapShape> shapes() {
    std::vector<MapShape> shapes;
    for (int64_t channels : {1, 3, 8, 16, 17, 40}) {
      shapes.push_back(KernelTest<Kernels>::shape(3, channels, 5, 7));
      shapes.push_back(KernelTest<Kernels>::shape(3, channels, 4, 16));
      shapes.push_back(KernelTest<Kernels>::shape(1, channels));
    }
    shapes.push_back(KernelTest<Kernels>::shape(1, 17, 29, 37));
    return shapes;
  }
};
TYPED_TEST_SUITE(ToBlockedTest, Compilations, CompilationName);

struct Strides {
  const char* name;
  int64_t n, c, y, x;
};
std::vector<Strides> strides_of(const MapShape& s) {
  const int64_t c = s.channels, h = s.height, w = s.width;
  return {{"contiguous", c * h * w, h * w, w, 1},
          {"channels last", h * w * c, 1, w * c, c},
          {"rows with gaps", c * h * (w + 3), h * (w + 3), w + 3, 1},
          {"channels last, rows with gaps", h * (w + 3) * c, 1, (w + 3) * c, c},
          {"rows and columns swapped", c * h * w, h * w, 1, h},
          {"one image for all samples", 0, h * w, w, 1}};
}

TYPED_TEST(ToBlockedTest, PacksAnyStrides) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : this->shapes()) {
      for (const Strides& s : strides_of(shape)) {
        SCOPED_TRACE(s.name);
        const int64_t last =
            (shape.batch - 1) * s.n + (shape.channels - 1) * s.c + (shape.height - 1) * s.y + (shape.width - 1) * s.x;
        const std::vector<float> plain = random_floats(last + 1, 1);
        TestMap map(shape, dtype);
        TypeParam::to_blocked({.shape = shape,
                               .dtype = dtype,
                               .plain = plain.data(),
                               .strides = {s.n, s.c, s.y, s.x},
                               .map = map.data()});
        map.expect(
            [&](int64_t n, int64_t c, int64_t y, int64_t x) {
              return rounded_to(dtype, plain[static_cast<size_t>(n * s.n + c * s.c + y * s.y + x * s.x)]);
            },
            0);
      }
    }
  }
}

TYPED_TEST(ToBlockedTest, UnpacksContiguously) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : this->shapes()) {
      const TestMap map = TestMap::random(shape, dtype, 1);
      TestBytes plain(shape.batch * shape.channels * shape.pixels() * 4);
      auto* const floats = reinterpret_cast<float*>(plain.data());
      TypeParam::to_plain({.shape = shape, .dtype = dtype, .map = map.data(), .plain = floats});
      EXPECT_TRUE(plain.fences_hold());
      int64_t i = 0, wrong = 0;
      map.each([&](auto... at) { wrong += floats[i++] != map.at(at...); });
      EXPECT_EQ(wrong, 0) << shape.channels << " channels, " << shape.height << " x " << shape.width;
    }
  }
}

// Rounds to nearest, ties to even, and NaN stays NaN. This holds for subnormal numbers, too, which the instruction
// vcvtneps2bf16 takes for zero.
TYPED_TEST(ToBlockedTest, RoundsToBfloat16) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<float, float>> pairs = {{1.0F, 1.0F},
                                                      {1.00390625F, 1.0F},       // a tie: down to even
                                                      {1.01171875F, 1.015625F},  // a tie: up to even
                                                      {1.00390637F, 1.0078125F},
                                                      {-1.00390637F, -1.0078125F},
                                                      {3.4e38F, infinity},
                                                      {infinity, infinity},
                                                      {0x1p-133F, 0x1p-133F},
                                                      {-0.0F, -0.0F}};
  const MapShape shape = this->shape(1, 1, 1, static_cast<int64_t>(pairs.size()) + 1);
  std::vector<float> plain;
  for (const auto& pair : pairs) plain.push_back(pair.first);
  plain.push_back(std::bit_cast<float>(0x7F800001U));  // a NaN whose upper bits are infinity's
  TestMap map(shape, DataType::kBfloat16);
  TypeParam::to_blocked({.shape = shape,
                         .dtype = DataType::kBfloat16,
                         .plain = plain.data(),
                         .strides = {shape.width, shape.width, shape.width, 1},
                         .map = map.data()});
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(map.at(0, 0, 0, static_cast<int64_t>(i)), pairs[i].second) << pairs[i].first;
  }
  EXPECT_TRUE(std::isnan(map.at(0, 0, 0, shape.width - 1)));
}

}  // namespace
}  // namespace trainyard::nn::cpu::to_blocked_test
