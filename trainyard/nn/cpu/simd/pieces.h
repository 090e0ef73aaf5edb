// Divides a map among threads, for kernels without sums over pixels: any thread may take any piece. Follows the rules
// of compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/output.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kPiecePixels = 512;

// Part of a channel block of a sample: pixels [first, last). `plane` = sample * blocks + block; `begin` is the first
// pixel's first element.
struct Piece {
  int64_t plane, first, last, begin;
};

// Calls use(piece) for pieces that make up the map.
template <typename Use>
inline void in_pieces(const MapShape& shape, const Use& use) {
  const int64_t planes = shape.batch * shape.blocks(), pixels = shape.pixels();
  const int64_t pieces = (pixels + kPiecePixels - 1) / kPiecePixels;
  for_each(planes * pieces, [&](int64_t i) {
    const int64_t plane = i / pieces, first = i % pieces * kPiecePixels, last = smaller(pixels, first + kPiecePixels);
    use(Piece{plane, first, last, (plane * pixels + first) * kLanes});
  });
}

// Calls use(element) for the first element of each pixel.
template <typename Use>
[[gnu::always_inline]] inline void each_pixel(const Piece& piece, Use&& use) {
  const int64_t end = piece.begin + (piece.last - piece.first) * kLanes;
  for (int64_t at = piece.begin; at < end; at += kLanes) use(at);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
