// Compiled without fused multiply-add (CMakeLists.txt) and free of functions of the C library whose last bit differs
// between machines: the same seed gives the same files everywhere.
#include "trainyard/data/datasets/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "trainyard/core/random/random.h"
#include "trainyard/data/datasets/shape_outlines.h"

namespace trainyard::data {
namespace {

using Color = std::array<float, 3>;  // [0, 255]

Color draw_color(core::RandomStream& random) {
  return {random.uniform(0, 255), random.uniform(0, 255), random.uniform(0, 255)};
}

float distance(const Color& a, const Color& b) {
  float sum = 0;
  for (int c = 0; c < 3; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return std::sqrt(sum);
}

// A colour that differs clearly from all of `others`. From a random start the cube's corner farthest away is approached
// until it does, so this always ends.
Color draw_contrasting(core::RandomStream& random, std::span<const Color> others, float min_contrast) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const Color color = draw_color(random);
    if (std::all_of(others.begin(), others.end(), [&](const Color& o) { return distance(color, o) >= min_contrast; })) {
      return color;
    }
  }
  const float away = others[0][0] + others[0][1] + others[0][2] < 382 ? 255 : 0;
  return {away, away, away};
}

// Flat, gradient, stripes or checkers between two colours.
class Background {
 public:
  explicit Background(core::RandomStream& random) : kind_(random.below(4)) {
    colors_[0] = draw_color(random);
    colors_[1] = colors_[0];
    if (kind_ != 0) {
      for (float& value : colors_[1]) value = std::clamp(value + random.uniform(-70, 70), 0.0F, 255.0F);
    }
    direction_x_ = random.uniform(-1, 1);
    direction_y_ = random.uniform(-1, 1);
    period_ = random.uniform(0.15F, 0.4F);
  }

  const std::array<Color, 2>& colors() const { return colors_; }

  // x, y in [0, 1].
  Color at(float x, float y) const {
    float mix = 0;
    switch (kind_) {
      case 1:
        mix = std::clamp(0.5F + direction_x_ * (x - 0.5F) + direction_y_ * (y - 0.5F), 0.0F, 1.0F);
        break;
      case 2:
        mix = odd(direction_x_ * x + direction_y_ * y) ? 1.0F : 0.0F;
        break;
      case 3:
        mix = odd(x) != odd(y) ? 1.0F : 0.0F;
        break;
      default:
        break;
    }
    Color color;
    for (int c = 0; c < 3; ++c) color[c] = colors_[0][c] + mix * (colors_[1][c] - colors_[0][c]);
    return color;
  }

 private:
  bool odd(float place) const { return (static_cast<int>(std::floor(place / period_)) & 1) != 0; }

  uint64_t kind_;
  std::array<Color, 2> colors_;
  float direction_x_, direction_y_, period_;
};

// One outline on the canvas.
struct Figure {
  const ShapeOutline* outline;
  double x, y, radius;          // pixels
  double cosine = 1, sine = 0;  // of its rotation
  Color color;
};

// The angle by the tangent of its half: no sine or cosine of the C library.
void rotate(Figure& figure, double half_tangent) {
  const double square = half_tangent * half_tangent;
  figure.cosine = (1 - square) / (1 + square);
  figure.sine = 2 * half_tangent / (1 + square);
}

using Canvas = std::vector<Color>;  // [size, size]

constexpr int kSubPixels = 4;  // a side: 16 points a pixel

// The part of the pixel inside the figure.
float coverage(const Figure& figure, int x, int y) {
  int inside = 0;
  for (int row = 0; row < kSubPixels; ++row) {
    for (int column = 0; column < kSubPixels; ++column) {
      const double dx = x + (column + 0.5) / kSubPixels - figure.x;
      const double dy = y + (row + 0.5) / kSubPixels - figure.y;
      const double u = (figure.cosine * dx + figure.sine * dy) / figure.radius;
      const double v = (figure.cosine * dy - figure.sine * dx) / figure.radius;
      if (figure.outline->contains(u, v)) ++inside;
    }
  }
  return static_cast<float>(inside) / (kSubPixels * kSubPixels);
}

// Returns the extent of the pixels that the figure has changed.
Box paint(const Figure& figure, int size, Canvas& canvas) {
  const int top = std::max(0, static_cast<int>(figure.y - figure.radius) - 1);
  const int bottom = std::min(size, static_cast<int>(figure.y + figure.radius) + 2);
  const int left = std::max(0, static_cast<int>(figure.x - figure.radius) - 1);
  const int right = std::min(size, static_cast<int>(figure.x + figure.radius) + 2);
  int first_y = size, first_x = size, last_y = -1, last_x = -1;
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) {
      const float part = coverage(figure, x, y);
      Color& pixel = canvas[static_cast<size_t>(y) * size + x];
      for (int c = 0; c < 3; ++c) pixel[c] += part * (figure.color[c] - pixel[c]);
      if (part == 0) continue;
      first_y = std::min(first_y, y);
      first_x = std::min(first_x, x);
      last_y = std::max(last_y, y);
      last_x = std::max(last_x, x);
    }
  }
  const auto side = static_cast<float>(size);
  return {.ymin = static_cast<float>(first_y) / side,
          .xmin = static_cast<float>(first_x) / side,
          .ymax = static_cast<float>(last_y + 1) / side,
          .xmax = static_cast<float>(last_x + 1) / side};
}

// Near enough to normal: the sum of four uniforms, whose variance is 4/12.
float draw_noise(core::RandomStream& random, float deviation) {
  const float sum = random.uniform() + random.uniform() + random.uniform() + random.uniform();
  return (sum - 2) * deviation * 1.7320508F;
}

Canvas painted(const Background& background, int size) {
  Canvas canvas(static_cast<size_t>(size) * size);
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      canvas[static_cast<size_t>(y) * size + x] = background.at(static_cast<float>(x) / static_cast<float>(size),
                                                                static_cast<float>(y) / static_cast<float>(size));
    }
  }
  return canvas;
}

Image with_noise(const Canvas& canvas, int size, core::RandomStream& random, float deviation) {
  Image image{.height = size, .width = size};
  image.pixels.reserve(3 * canvas.size());
  for (const Color& pixel : canvas) {
    for (float value : pixel) {
      const float noisy = value + draw_noise(random, deviation);
      image.pixels.push_back(static_cast<uint8_t>(std::lround(std::clamp(noisy, 0.0F, 255.0F))));
    }
  }
  return image;
}

}  // namespace

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const ShapeOutline& outline : shape_outlines()) result.emplace_back(outline.name);
    return result;
  }();
  return names;
}

int64_t shape_label(int64_t index) {
  return index % static_cast<int64_t>(shape_outlines().size());
}

Image draw_shape(uint64_t seed, Subset subset, int64_t index, int size, const ShapesDifficulty& difficulty) {
  core::RandomStream random(seed, "shapes",
                            {subset == Subset::kTrain ? uint64_t{0} : uint64_t{1}, static_cast<uint64_t>(index)});
  const std::span<const ShapeOutline> outlines = shape_outlines();
  const Background background(random);
  Canvas canvas = painted(background, size);

  // Distractors: small discs and squares, under the shape.
  const auto side = static_cast<float>(size);
  for (uint64_t i = random.below(difficulty.max_distractors + 1); i > 0; --i) {
    Figure dot{.outline = &outlines[random.below(2)],
               .x = random.uniform(0, side),
               .y = random.uniform(0, side),
               .radius = random.uniform(0.03F, 0.07F) * side,
               .color = draw_color(random)};
    paint(dot, size, canvas);
  }

  Figure shape{.outline = &outlines[shape_label(index)]};
  shape.radius = random.uniform(difficulty.min_radius, difficulty.max_radius) * side;
  shape.x = random.uniform(static_cast<float>(shape.radius), side - static_cast<float>(shape.radius));
  shape.y = random.uniform(static_cast<float>(shape.radius), side - static_cast<float>(shape.radius));
  rotate(shape, random.uniform(-difficulty.max_tilt, difficulty.max_tilt));
  shape.color = draw_contrasting(random, background.colors(), difficulty.min_contrast);
  paint(shape, size, canvas);

  return with_noise(canvas, size, random, difficulty.noise);
}

BoxedShapes draw_boxed_shapes(uint64_t seed, Subset subset, int64_t index, int size, int most) {
  const ShapesDifficulty difficulty;
  core::RandomStream random(seed, "boxed_shapes",
                            {subset == Subset::kTrain ? uint64_t{0} : uint64_t{1}, static_cast<uint64_t>(index)});
  const std::span<const ShapeOutline> outlines = shape_outlines();
  const Background background(random);
  Canvas canvas = painted(background, size);
  const auto side = static_cast<float>(size);
  BoxedShapes drawn;
  std::vector<Figure> figures;
  // A shape that does not find a free place is left out; the first one always does.
  const auto wanted = static_cast<int>(1 + random.below(static_cast<uint64_t>(most)));
  for (int attempt = 0; attempt < 10 * wanted && std::ssize(figures) < wanted; ++attempt) {
    const uint64_t kind = random.below(outlines.size());
    Figure shape{.outline = &outlines[kind]};
    shape.radius = random.uniform(0.08F, 0.24F) * side;
    shape.x = random.uniform(static_cast<float>(shape.radius), side - static_cast<float>(shape.radius));
    shape.y = random.uniform(static_cast<float>(shape.radius), side - static_cast<float>(shape.radius));
    rotate(shape, random.uniform(-difficulty.max_tilt, difficulty.max_tilt));
    shape.color = draw_contrasting(random, background.colors(), difficulty.min_contrast);
    const bool apart = std::all_of(figures.begin(), figures.end(), [&](const Figure& other) {
      const double dx = shape.x - other.x, dy = shape.y - other.y, reach = shape.radius + other.radius + 2;
      return dx * dx + dy * dy > reach * reach;
    });
    if (!apart) continue;
    drawn.boxes.push_back(paint(shape, size, canvas));
    drawn.shapes.push_back(static_cast<int64_t>(kind));
    figures.push_back(shape);
  }
  drawn.image = with_noise(canvas, size, random, difficulty.noise);
  return drawn;
}

}  // namespace trainyard::data
