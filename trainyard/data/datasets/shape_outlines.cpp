#include "trainyard/data/datasets/shape_outlines.h"

#include <array>
#include <cmath>
#include <cstddef>

namespace trainyard::data {
namespace {

struct Point {
  double x, y;
};

// Whether the point is inside a polygon: the parity of the edges to its right.
template <size_t N>
bool in_polygon(const std::array<Point, N>& corners, double x, double y) {
  bool inside = false;
  for (size_t i = 0, j = N - 1; i < N; j = i++) {
    const Point a = corners[i];
    const Point b = corners[j];
    if ((a.y > y) != (b.y > y) && x < (b.x - a.x) * (y - a.y) / (b.y - a.y) + a.x) inside = !inside;
  }
  return inside;
}

bool in_circle(double x, double y, double radius) {
  return x * x + y * y <= radius * radius;
}
bool in_box(double x, double y, double half_width, double half_height) {
  return std::abs(x) <= half_width && std::abs(y) <= half_height;
}

bool circle(double x, double y) {
  return in_circle(x, y, 0.85);
}
bool square(double x, double y) {
  return in_box(x, y, 0.72, 0.72);
}
bool triangle(double x, double y) {
  static constexpr std::array<Point, 3> kCorners = {{{0, -0.95}, {0.9, 0.7}, {-0.9, 0.7}}};
  return in_polygon(kCorners, x, y);
}
bool star(double x, double y) {
  static constexpr std::array<Point, 10> kCorners = {{{0, -1},
                                                      {0.2235, -0.3076},
                                                      {0.9511, -0.309},
                                                      {0.3617, 0.1175},
                                                      {0.5878, 0.809},
                                                      {0, 0.38},
                                                      {-0.5878, 0.809},
                                                      {-0.3617, 0.1175},
                                                      {-0.9511, -0.309},
                                                      {-0.2235, -0.3076}}};
  return in_polygon(kCorners, x, y);
}
bool cross(double x, double y) {
  return in_box(x, y, 0.9, 0.28) || in_box(x, y, 0.28, 0.9);
}
bool ring(double x, double y) {
  return in_circle(x, y, 0.92) && !in_circle(x, y, 0.52);
}
bool crescent(double x, double y) {
  return in_circle(x, y, 0.95) && !in_circle(x - 0.45, y, 0.75);
}
bool arrow(double x, double y) {
  static constexpr std::array<Point, 7> kCorners = {
      {{1, 0}, {0.2, -0.75}, {0.2, -0.25}, {-0.95, -0.25}, {-0.95, 0.25}, {0.2, 0.25}, {0.2, 0.75}}};
  return in_polygon(kCorners, x, y);
}
// Two discs over a triangle.
bool heart(double x, double y) {
  static constexpr std::array<Point, 4> kCorners = {{{0, 0.95}, {-0.86, -0.05}, {0, -0.35}, {0.86, -0.05}}};
  return in_circle(x - 0.44, y + 0.32, 0.5) || in_circle(x + 0.44, y + 0.32, 0.5) || in_polygon(kCorners, x, y);
}
bool frame(double x, double y) {
  return in_box(x, y, 0.75, 0.75) && !in_box(x, y, 0.4, 0.4);
}
bool half_disc(double x, double y) {
  return y <= 0.4 && in_circle(x, y - 0.4, 0.95);
}
bool hourglass(double x, double y) {
  return std::abs(y) <= 0.85 && std::abs(x) <= std::abs(y) * 0.85;
}

constexpr std::array<ShapeOutline, 12> kOutlines = {{{"circle", circle},
                                                     {"square", square},
                                                     {"triangle", triangle},
                                                     {"star", star},
                                                     {"cross", cross},
                                                     {"ring", ring},
                                                     {"crescent", crescent},
                                                     {"arrow", arrow},
                                                     {"heart", heart},
                                                     {"frame", frame},
                                                     {"half_disc", half_disc},
                                                     {"hourglass", hourglass}}};

}  // namespace

std::span<const ShapeOutline> shape_outlines() {
  return kOutlines;
}

}  // namespace trainyard::data
