// Mixup (Zhang, Cisse, Dauphin, Lopez-Paz, "mixup: beyond empirical risk minimization", 2018) and CutMix (Yun, Han, Oh,
// Chun, Choe, Yoo, "CutMix: regularization strategy to train strong classifiers with localizable features", 2019), as
// torchvision's transforms.v2 computes both on a batch of two images: each gets a share of the other one.
//
//   core::RandomStream random = mixing_stream(seed, epoch, offset);
//   const Mix mix = draw_mix(options, size, random);
//   mix_pair(mix, form, size, first, second);
#pragma once

#include <cstdint>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// How two images are mixed, each with the other.
struct Mix {
  enum class Kind { kNone, kMixup, kCutmix };
  Kind kind = Kind::kNone;
  double share = 1;  // an image's own share: of its pixels and of its label
  CropWindow box{};  // kCutmix: the part that is taken from the other image; may be empty
};

// Returns the stream from which the mix of a pair is drawn. (epoch, offset) is the position of the pair's first sample
// in the order of the samples, so that the draw does not depend on threads, replicas, batch sizes, or where a run
// began.
[[nodiscard]] core::RandomStream mixing_stream(uint64_t seed, int64_t epoch, int64_t offset);

// Draws whether and how a pair is mixed: the share of mixup from Beta(alpha, alpha); for CutMix the area of a box from
// it, and a centre from all pixels. CutMix's share is the part of the pixels outside of the clipped box.
Mix draw_mix(const MixOptions& options, ImageSize image, core::RandomStream& random);

// Returns CutMix' box around (centre_y, centre_x): sqrt(1 - share) of the image's sides, rounded as torchvision rounds,
// and clipped at its borders.
[[nodiscard]] CropWindow cutmix_box(double share, int centre_y, int centre_x, ImageSize image);

// Mixes two images of this form and size in place: mixup makes share * own + (1 - share) * other of both, CutMix
// exchanges their boxes. Throws kUnsupported for mixup of anything but float, for channels last, and for images that
// are not in the host's memory.
void mix_pair(const Mix& mix, const ImageForm& form, ImageSize size, void* first, void* second);

// Throws what mix_pair() would throw for images of this form.
void check_mixing(const MixOptions& options, const ImageForm& form);

}  // namespace trainyard::data
