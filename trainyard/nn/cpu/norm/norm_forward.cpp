// Batch normalization in training: the statistics (statistics.h), then the pass that normalizes.
#include "trainyard/nn/cpu/norm/statistics.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T>
void run(const NormForward& a) {
  const ApplyAffine affine = choose_affine(a.dtype, a.activation, a.residual != nullptr, a.mask != nullptr);
  in_waves<Affine>(
      a.shape, sizeof(T) * kLanes,
      [&](int64_t block, const Span& span, Sums& sums) { collect_block<T>(a, block, span, sums); },
      [&](int64_t block, const Sums& total) { return affine_of<T>(a, block, moments_of<T>(a, block, total)); },
      [&](const Affine& state, const Span& span) { affine(state, span); });
}

template <typename T>
void write_moments(const NormForward& a) {
  sum_blocks(
      a.shape, [&](int64_t block, const Span& span, Sums& sums) { collect_block<T>(a, block, span, sums); },
      [&](int64_t block, const Sums& total) {
        const Moments moments = moments_of<T>(a, block, total);
        for (int64_t c = 0; c < kLanes && block * kLanes + c < a.shape.channels; ++c) {
          a.moments[block * kLanes + c] = moments.mean[c];
          a.moments[a.shape.channels + block * kLanes + c] = moments.variance[c];
        }
      });
}

template <typename T>
void normalize(const NormForward& a) {
  const ApplyAffine affine = choose_affine(a.dtype, a.activation, a.residual != nullptr, a.mask != nullptr);
  apply_to_blocks<Affine>(
      a.shape,
      [&](int64_t block) {
        Moments moments = {};
        for (int64_t c = 0; c < kLanes && block * kLanes + c < a.shape.channels; ++c) {
          moments.mean[c] = a.moments[block * kLanes + c];
          moments.variance[c] = a.moments[a.shape.channels + block * kLanes + c];
        }
        return affine_of<T>(a, block, moments);
      },
      [&](const Affine& state, const Span& span) { affine(state, span); });
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(norm_forward, NormForward, run)
TRAINYARD_KERNEL_OF_TYPES(norm_moments, NormForward, write_moments)
TRAINYARD_KERNEL_OF_TYPES(norm_with_moments, NormForward, normalize)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
