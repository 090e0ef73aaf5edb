#include "trainyard/data/image/resize.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::data::resize_test {
namespace {

// The definitions of resize.h in double precision, pixel by pixel, but for the place i * scale: TensorFlow computes it
// in single precision, and on which side of a pixel's edge it falls is part of the definition.
using Sampler = std::function<double(const std::function<double(int)>& input, int size, float place, float scale)>;

double keys(double distance) {
  const double a = -0.75;
  const double x = std::abs(distance);
  if (x <= 1) return (a + 2) * x * x * x - (a + 3) * x * x + 1;
  if (x < 2) return a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a;
  return 0;
}

Sampler sampler(ResizeMethod method) {
  switch (method) {
    case ResizeMethod::kNearest:
      return [](const auto& input, int size, float place, float) {
        return input(std::min(static_cast<int>(std::floor(place)), size - 1));
      };
    case ResizeMethod::kBilinear:
      return [](const auto& input, int size, float place, float) {
        const int base = static_cast<int>(std::floor(place));
        const double part = place - base;
        return (1 - part) * input(base) + part * input(std::min(base + 1, size - 1));
      };
    case ResizeMethod::kBicubic:
      return [](const auto& input, int size, float place, float) {
        const int base = static_cast<int>(std::floor(place));
        const double part = std::lrint((place - static_cast<float>(base)) * 1024) / 1024.0;
        double sum = 0;
        for (int k = -1; k <= 2; ++k) sum += keys(part - k) * input(std::clamp(base + k, 0, size - 1));
        return sum;
      };
    case ResizeMethod::kArea:
      break;
  }
  return [](const auto& input, int size, float place, float scale) {
    const double end = place + static_cast<double>(scale);
    double sum = 0;
    for (int i = 0; i <= size; ++i) {
      const double covered = std::min(i + 1.0, end) - std::max<double>(i, place);
      if (covered > 0) sum += covered * input(std::min(i, size - 1));
    }
    return sum / scale;
  };
}

double reference(const Image& image, ImageSize size, ResizeMethod method, bool mirror, int y, int x, int c) {
  const float scale_y = static_cast<float>(image.height) / static_cast<float>(size.height);
  const float scale_x = static_cast<float>(image.width) / static_cast<float>(size.width);
  const Sampler sample = sampler(method);
  return sample(
      [&](int row) {
        return sample(
            [&](int column) -> double {
              const int source = mirror ? image.width - 1 - column : column;
              return image.pixels[3 * (static_cast<size_t>(row) * image.width + source) + c];
            },
            image.width, static_cast<float>(x) * scale_x, scale_x);
      },
      image.height, static_cast<float>(y) * scale_y, scale_y);
}

constexpr ResizeMethod kMethods[] = {ResizeMethod::kNearest, ResizeMethod::kBilinear, ResizeMethod::kBicubic,
                                     ResizeMethod::kArea};

TEST(Resize, FollowsTheDefinitions) {
  const struct {
    ImageSize from, to;
  } cases[] = {{{20, 30}, {7, 9}}, {{7, 5}, {16, 20}}, {{13, 13}, {13, 13}}, {{1, 1}, {4, 3}}, {{40, 3}, {5, 11}}};
  for (const auto& [from, to] : cases) {
    const Image image = noisy_image(from.height, from.width);
    for (ResizeMethod method : kMethods) {
      for (bool mirror : {false, true}) {
        std::vector<float> out(size_t{3} * to.height * to.width);
        resize(image, to, {0, 0, to.height, to.width}, {.method = method, .mirror = mirror}, out.data());
        size_t i = 0;
        for (int c = 0; c < 3; ++c) {
          for (int y = 0; y < to.height; ++y) {
            for (int x = 0; x < to.width; ++x, ++i) {
              ASSERT_NEAR(out[i], reference(image, to, method, mirror, y, x, c), 2e-3)
                  << from.width << "x" << from.height << " to " << to.width << "x" << to.height << " method "
                  << static_cast<int>(method) << " mirror " << mirror << " at " << c << " " << y << " " << x;
            }
          }
        }
      }
    }
  }
}

TEST(Resize, WindowIsPartOfTheWhole) {
  const Image image = noisy_image(33, 47);
  const ImageSize size{24, 28};
  const CropWindow window{5, 9, 11, 13};
  for (ResizeMethod method : kMethods) {
    for (bool mirror : {false, true}) {
      std::vector<float> whole(size_t{3} * size.height * size.width);
      std::vector<float> part(size_t{3} * window.height * window.width);
      resize(image, size, {0, 0, size.height, size.width}, {.method = method, .mirror = mirror}, whole.data());
      resize(image, size, window, {.method = method, .mirror = mirror}, part.data());
      for (int c = 0; c < 3; ++c) {
        for (int y = 0; y < window.height; ++y) {
          for (int x = 0; x < window.width; ++x) {
            ASSERT_EQ(part[(c * window.height + y) * window.width + x],
                      whole[(c * size.height + window.y + y) * size.width + window.x + x]);
          }
        }
      }
    }
  }
}

// Areas are averages as they are, and the nearest pixel is one pixel.
TEST(Resize, AntialiasingIsOfSmoothMethodsAlone) {
  const Image image = noisy_image(20, 30);
  for (const ImageSize size : {ImageSize{7, 9}, ImageSize{33, 41}}) {
    for (const ResizeMethod method : kMethods) {
      const auto resized = [&](bool antialias) {
        std::vector<float> out(size_t{3} * size.height * size.width);
        resize(image, size, {0, 0, size.height, size.width}, {.method = method, .antialias = antialias}, out.data());
        return out;
      };
      const bool smooth = method == ResizeMethod::kBilinear || method == ResizeMethod::kBicubic;
      if (!smooth) {
        EXPECT_EQ(resized(true), resized(false)) << static_cast<int>(method);
      } else if (size.height < image.height) {
        EXPECT_NE(resized(true), resized(false)) << static_cast<int>(method);
      }
    }
  }
}

TEST(Resize, KnownNumbers) {
  // Two pixels to four: TensorFlow 1 gives 0, 50, 100, 100; half-pixel centres would give 0, 25, 75, 100.
  const Image image{.height = 1, .width = 2, .pixels = {0, 0, 0, 100, 100, 100}};
  std::vector<float> out(12);
  resize(image, {1, 4}, {0, 0, 1, 4}, {}, out.data());
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 4), (std::vector<float>{0, 50, 100, 100}));
}

// What tools/golden/resize.py had TensorFlow and torchvision make of an image.
TEST(Resize, FollowsTensorFlowAndTorchvision) {
  Image image{.height = 23, .width = 31};
  uint32_t state = 1;
  for (int i = 0; i < 23 * 31 * 3; ++i) {
    state = 1664525 * state + 1013904223;
    image.pixels.push_back(static_cast<uint8_t>(state >> 24));
  }
  const struct {
    const char* name;
    bool antialias, half_pixel_centers;
    std::vector<const char*> methods;
  } forms[] = {{"tf1_", false, false, {"nearest", "bilinear", "bicubic", "area"}},
               {"tf2_", false, true, {"nearest", "bilinear", "bicubic"}},
               {"tf2_antialias_", true, true, {"bilinear", "bicubic"}},
               {"torchvision_antialias_", true, true, {"bilinear", "bicubic"}}};
  int compared = 0;
  for (const auto& form : forms) {
    for (const char* method : form.methods) {
      for (const char* change : {"smaller", "larger"}) {
        const std::string path = std::string("trainyard/data/testdata/resize_") + form.name + method + "_" + change;
        if (!core::local_file_system().exists(path + ".npy")) continue;  // torchvision: smaller only
        const formats::NpyArray golden = formats::read_npy(*core::local_file_system().open_read(path + ".npy"));
        const ImageSize size{static_cast<int>(golden.shape[1]), static_cast<int>(golden.shape[2])};
        std::vector<float> out(golden.values<float>().size());
        resize(image, size, {0, 0, size.height, size.width},
               {.method = resize_method(method),
                .antialias = form.antialias,
                .half_pixel_centers = form.half_pixel_centers},
               out.data());
        for (size_t i = 0; i < out.size(); ++i)
          ASSERT_NEAR(out[i], golden.values<float>()[i], 0.02) << path << " " << i;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 20);
}

TEST(Resize, ScaleAndShiftByChannel) {
  const Image image = noisy_image(9, 12);
  std::vector<float> plain(3 * 5 * 7), scaled(3 * 5 * 7);
  resize(image, {5, 7}, {0, 0, 5, 7}, {}, plain.data());
  resize(image, {5, 7}, {0, 0, 5, 7}, {.scale = {2, 0.5F, -1}, .shift = {1, 0, 3}}, scaled.data());
  for (int i = 0; i < 35; ++i) {
    EXPECT_NEAR(scaled[i], 2 * plain[i] + 1, 1e-3);
    EXPECT_NEAR(scaled[35 + i], 0.5 * plain[35 + i], 1e-3);
    EXPECT_NEAR(scaled[70 + i], 3 - plain[70 + i], 1e-3);
  }
}

TEST(Resize, NamesOfMethods) {
  EXPECT_EQ(resize_method("area"), ResizeMethod::kArea);
  EXPECT_EQ(resize_method("nearest"), ResizeMethod::kNearest);
  EXPECT_EQ(resize_method("bilinear"), ResizeMethod::kBilinear);
  EXPECT_EQ(resize_method("bicubic"), ResizeMethod::kBicubic);
  EXPECT_THROW(resize_method("crop"), core::Error);
}

}  // namespace
}  // namespace trainyard::data::resize_test
