// GELU and its derivative for results that are rounded to bfloat16 or bytes, by cubic polynomials for each sixth: to
// 2e-4 of the exact value down to -5.1, and to 7e-7, absolutely, below, where GELU is 0 from -5.17 on. It takes a third
// of the instructions of activation.h's. With AVX2 alone it is that one. NaN stays NaN, and infinity becomes what it
// becomes there. Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/elementwise/activation.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// An activation and its derivative, as precise as results of type T need them. Made once, outside of loops.
template <UnitActivation kind, typename T>
struct ActivationTo {
  [[gnu::always_inline]] Floats operator()(Floats x) const { return activate<kind>(x); }
  [[gnu::always_inline]] Floats pass_back(Floats gradient, Floats x) const {
    return trainyard::nn::cpu::TRAINYARD_ISA::pass_back<kind>(gradient, x);
  }
};

#if defined(TRAINYARD_KERNELS_AVX512)
// Coefficients of t^0 to t^3 in segment i: the probability above (i + t) / 6 of the normal distribution with mean 0 and
// variance 1, interpolated at Chebyshev's points. In the last segment it is taken for 0.
constexpr float kTailOfNormal[4][32] = {
    {5.00000000e-01F, 4.33816224e-01F, 3.69441450e-01F, 3.08537662e-01F,
     2.52492666e-01F, 2.02328518e-01F, 1.58655360e-01F, 1.21672593e-01F,
     9.12112743e-02F, 6.68072253e-02F, 4.77903523e-02F, 3.33764888e-02F,
     2.27501001e-02F, 1.51301036e-02F, 9.81529150e-03F, 6.20963098e-03F,
     3.83035140e-03F, 2.30324268e-03F, 1.34988013e-03F, 7.70971819e-04F,
     4.29051317e-04F, 2.32623061e-04F, 1.22862533e-04F, 6.32068477e-05F,
     3.16698242e-05F, 1.54534810e-05F, 7.34297100e-06F, 3.39743019e-06F,
     1.53050053e-06F, 6.71265070e-07F, 2.86620718e-07F, 0},
    {-6.64910078e-02F, -6.55754209e-02F, -6.29005581e-02F, -5.86816892e-02F,
     -5.32457530e-02F, -4.69895266e-02F, -4.03320603e-02F, -3.36691849e-02F,
     -2.73367707e-02F, -2.15870757e-02F, -1.65795237e-02F, -1.23845888e-02F,
     -8.99750274e-03F, -6.35759765e-03F, -4.36912384e-03F, -2.92028766e-03F,
     -1.89839513e-03F, -1.20026479e-03F, -7.38068542e-04F, -4.41413169e-04F,
     -2.56757194e-04F, -1.45254118e-04F, -7.99213158e-05F, -4.27685918e-05F,
     -2.22594899e-05F, -1.12676489e-05F, -5.54726648e-06F, -2.65614813e-06F,
     -1.23695213e-06F, -5.60248623e-07F, -2.46794684e-07F, 0},
    {2.87152943e-06F, 9.21164057e-04F, 1.76372170e-03F, 2.46548187e-03F,
     2.97993445e-03F, 3.28400172e-03F, 3.37886834e-03F, 3.28697753e-03F,
     3.04618431e-03F, 2.70248856e-03F, 2.30284175e-03F, 1.88924139e-03F,
     1.49484212e-03F, 1.14226330e-03F, 8.43820570e-04F, 6.03120250e-04F,
     4.17364587e-04F, 2.79782747e-04F, 1.81767115e-04F, 1.14488685e-04F,
     6.99361117e-05F, 4.14429487e-05F, 2.38293451e-05F, 1.32976384e-05F,
     7.20302978e-06F, 3.78793175e-06F, 1.93417350e-06F, 9.59065574e-07F,
     4.61857951e-07F, 2.16032134e-07F, 9.81559154e-08F, 0},
    {3.04313697e-04F,  2.79435684e-04F,  2.33038430e-04F,  1.71210442e-04F,
     1.01661783e-04F,  3.23939421e-05F,  -2.95609352e-05F, -7.90824488e-05F,
     -1.13437622e-04F, -1.32266563e-04F, -1.37166193e-04F, -1.31031542e-04F,
     -1.17332507e-04F, -9.94776419e-05F, -8.03598741e-05F, -6.21165382e-05F,
     -4.60827468e-05F, -3.28849237e-05F, -2.26107713e-05F, -1.49991010e-05F,
     -9.60950729e-06F, -5.95102438e-06F, -3.56484338e-06F, -2.06680875e-06F,
     -1.16033868e-06F, -6.31067337e-07F, -3.32605595e-07F, -1.69934594e-07F,
     -8.41881302e-08F, -4.04520613e-08F, -1.88557188e-08F, 0},
};

class RoundedGelu {
 public:
  RoundedGelu() {
    for (int power = 0; power < 4; ++power) {
      low_[power] = load(kTailOfNormal[power]);
      high_[power] = load(kTailOfNormal[power] + kLanes);
    }
  }
  [[gnu::always_inline]] Floats operator()(Floats x) const { return x * normal_below(x); }
  [[gnu::always_inline]] Floats pass_back(Floats gradient, Floats x) const {
    return gradient * multiply_add(x, normal_density(bell(x)), normal_below(x));
  }

 private:
  // Returns the probability below x of the normal distribution with mean 0 and variance 1.
  [[gnu::always_inline]] Floats normal_below(Floats x) const {
    const Floats place = at_most(5.25F, absolute(x)) * fill(6.0F);
    const __m512i segment = _mm512_cvttps_epi32(place);
    const Floats t = place - _mm512_cvtepi32_ps(segment);
    const auto coefficient = [&](int power) __attribute__((always_inline)) {
      return _mm512_permutex2var_ps(low_[power], segment, high_[power]);
    };
    const Floats above = multiply_add(multiply_add(multiply_add(coefficient(3), t, coefficient(2)), t, coefficient(1)),
                                      t, coefficient(0));
    return x < Floats{} ? above : fill(1.0F) - above;
  }

  Floats low_[4], high_[4];
};
#else
using RoundedGelu = ActivationTo<UnitActivation::kGelu, float>;
#endif

template <>
struct ActivationTo<UnitActivation::kGelu, Bfloat16> : RoundedGelu {};

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
