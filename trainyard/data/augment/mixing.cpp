#include "trainyard/data/augment/mixing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

void require_alpha(const char* name, double alpha) {
  if (alpha >= 0 && std::isfinite(alpha)) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is out of range", name),
                                                        .expected = "0 or more",
                                                        .actual = fmt::format("{}", alpha)});
}

void require_probability(const char* name, double probability) {
  if (probability >= 0 && probability <= 1) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is out of range", name),
                                                        .expected = "0 to 1",
                                                        .actual = fmt::format("{}", probability)});
}

// In (0, 1), so that its logarithm is finite.
double positive_uniform(core::RandomStream& random) {
  double number = 0;
  while (number == 0) number = random.uniform_double();
  return number;
}

// Draws from Gamma(shape, 1) and returns the logarithm, because small shapes make numbers that no double holds.
// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
double log_gamma_number(double shape, core::RandomStream& random) {
  if (shape < 1) {
    const double above = log_gamma_number(shape + 1, random);
    return above + std::log(positive_uniform(random)) / shape;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(positive_uniform(random)) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

// Draws from Beta(alpha, alpha).
double beta_number(double alpha, core::RandomStream& random) {
  const double own = log_gamma_number(alpha, random), other = log_gamma_number(alpha, random);
  return 1 / (1 + std::exp(other - own));
}

// As torchvision rounds: each product becomes a float before the sum, and the share as well (the file is compiled
// without fused multiply-add).
void mix_floats(float share, float rest, int64_t count, float* __restrict first, float* __restrict second) {
  for (int64_t i = 0; i < count; ++i) {
    const float a = first[i], b = second[i];
    first[i] = b * rest + a * share;
    second[i] = a * rest + b * share;
  }
}

// The processor's own prefetching ends with each page of memory. Asking for what is two pages ahead, for the core's
// second cache, makes the two streams quicker where the images have left it meanwhile, and costs nothing where they
// have not.
void mix_floats_ahead(float share, float rest, int64_t count, float* first, float* second) {
  constexpr int64_t kBlock = 64, kLine = 16, kAhead = 2048;  // floats
  int64_t i = 0;
  for (; i + kBlock + kAhead <= count; i += kBlock) {
    for (int64_t line = i + kAhead; line < i + kAhead + kBlock; line += kLine) {
      __builtin_prefetch(first + line, 0, 2);
      __builtin_prefetch(second + line, 0, 2);
    }
    mix_floats(share, rest, kBlock, first + i, second + i);
  }
  mix_floats(share, rest, count - i, first + i, second + i);
}

void exchange_boxes(const CropWindow& box, ImageSize size, int64_t element_bytes, std::byte* first, std::byte* second) {
  const int64_t row_bytes = box.width * element_bytes;
  for (int c = 0; c < 3; ++c) {
    for (int y = box.y; y < box.y + box.height; ++y) {
      const int64_t at = ((static_cast<int64_t>(c) * size.height + y) * size.width + box.x) * element_bytes;
      std::swap_ranges(first + at, first + at + row_bytes, second + at);
    }
  }
}

}  // namespace

void MixOptions::validate() const {
  require_alpha("mixup_alpha", mixup_alpha);
  require_alpha("cutmix_alpha", cutmix_alpha);
  require_probability("the probability of mixing", probability);
  require_probability("the probability of CutMix", cutmix_probability);
}

core::RandomStream mixing_stream(uint64_t seed, int64_t epoch, int64_t offset) {
  return {seed, "mixing", {static_cast<uint64_t>(epoch), static_cast<uint64_t>(offset)}};
}

CropWindow cutmix_box(double share, int centre_y, int centre_x, ImageSize image) {
  const double half = 0.5 * std::sqrt(1 - share);
  const int half_width = static_cast<int>(half * image.width), half_height = static_cast<int>(half * image.height);
  const int left = std::max(centre_x - half_width, 0), right = std::min(centre_x + half_width, image.width);
  const int top = std::max(centre_y - half_height, 0), bottom = std::min(centre_y + half_height, image.height);
  return {top, left, bottom - top, right - left};
}

Mix draw_mix(const MixOptions& options, ImageSize image, core::RandomStream& random) {
  Mix mix;
  if (!options.enabled() || !(random.uniform_double() < options.probability)) return mix;
  const bool both = options.mixup_alpha > 0 && options.cutmix_alpha > 0;
  const bool cutmix = both ? random.uniform_double() < options.cutmix_probability : options.cutmix_alpha > 0;
  mix.kind = cutmix ? Mix::Kind::kCutmix : Mix::Kind::kMixup;
  mix.share = beta_number(cutmix ? options.cutmix_alpha : options.mixup_alpha, random);
  if (!cutmix) return mix;
  const int x = static_cast<int>(random.below(static_cast<uint64_t>(image.width)));
  const int y = static_cast<int>(random.below(static_cast<uint64_t>(image.height)));
  mix.box = cutmix_box(mix.share, y, x, image);
  mix.share =
      1 - static_cast<double>(mix.box.width) * mix.box.height / (static_cast<double>(image.width) * image.height);
  return mix;
}

void check_mixing(const MixOptions& options, const ImageForm& form) {
  const bool plain = form.device.is_cpu() && form.layout == at::MemoryFormat::Contiguous;
  const bool dtype = options.mixup_alpha == 0 || form.dtype == at::kFloat;
  if (!options.enabled() || (plain && dtype)) return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "images of this form cannot be mixed",
                     .expected = "images in the host's memory, plane behind plane; float for mixup",
                     .actual = fmt::format("{} on {}{}", c10::toString(form.dtype), form.device.str(),
                                           form.layout == at::MemoryFormat::Contiguous ? "" : ", channels last"),
                     .remedy = "let the CPU make the images, or leave mixup and CutMix out"});
}

void mix_pair(const Mix& mix, const ImageForm& form, ImageSize size, void* first, void* second) {
  if (mix.kind == Mix::Kind::kNone) return;
  const bool mixup = mix.kind == Mix::Kind::kMixup;
  check_mixing({.mixup_alpha = mixup ? 1.0 : 0.0, .cutmix_alpha = mixup ? 0.0 : 1.0}, form);
  if (mixup) {
    mix_floats_ahead(static_cast<float>(mix.share), static_cast<float>(1 - mix.share),
                     int64_t{3} * size.height * size.width, static_cast<float*>(first), static_cast<float*>(second));
  } else {
    exchange_boxes(mix.box, size, static_cast<int64_t>(c10::elementSize(form.dtype)), static_cast<std::byte*>(first),
                   static_cast<std::byte*>(second));
  }
}

}  // namespace trainyard::data
