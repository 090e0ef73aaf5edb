#include "trainyard/data/augment/auto_augment_pairs.h"

namespace trainyard::data {
namespace {

using Op = AugmentOp;
using Pair = AutoAugmentPair;

constexpr std::array<Pair, 25> kImagenet = {{
    {{{Op::kPosterize, 4, 8}, {Op::kRotate, 6, 9}}},  {{{Op::kSolarize, 6, 5}, {Op::kAutoContrast, 6, 0}}},
    {{{Op::kEqualize, 8, 0}, {Op::kEqualize, 6, 0}}}, {{{Op::kPosterize, 6, 7}, {Op::kPosterize, 6, 6}}},
    {{{Op::kEqualize, 4, 0}, {Op::kSolarize, 2, 4}}}, {{{Op::kEqualize, 4, 0}, {Op::kRotate, 8, 8}}},
    {{{Op::kSolarize, 6, 3}, {Op::kEqualize, 6, 0}}}, {{{Op::kPosterize, 8, 5}, {Op::kEqualize, 10, 0}}},
    {{{Op::kRotate, 2, 3}, {Op::kSolarize, 6, 8}}},   {{{Op::kEqualize, 6, 0}, {Op::kPosterize, 4, 6}}},
    {{{Op::kRotate, 8, 8}, {Op::kColor, 4, 0}}},      {{{Op::kRotate, 4, 9}, {Op::kEqualize, 6, 0}}},
    {{{Op::kEqualize, 0, 0}, {Op::kEqualize, 8, 0}}}, {{{Op::kInvert, 6, 0}, {Op::kEqualize, 10, 0}}},
    {{{Op::kColor, 6, 4}, {Op::kContrast, 10, 8}}},   {{{Op::kRotate, 8, 8}, {Op::kColor, 10, 2}}},
    {{{Op::kColor, 8, 8}, {Op::kSolarize, 8, 7}}},    {{{Op::kSharpness, 4, 7}, {Op::kInvert, 6, 0}}},
    {{{Op::kShearX, 6, 5}, {Op::kEqualize, 10, 0}}},  {{{Op::kColor, 4, 0}, {Op::kEqualize, 6, 0}}},
    {{{Op::kEqualize, 4, 0}, {Op::kSolarize, 2, 4}}}, {{{Op::kSolarize, 6, 5}, {Op::kAutoContrast, 6, 0}}},
    {{{Op::kInvert, 6, 0}, {Op::kEqualize, 10, 0}}},  {{{Op::kColor, 6, 4}, {Op::kContrast, 10, 8}}},
    {{{Op::kEqualize, 8, 0}, {Op::kEqualize, 6, 0}}},
}};

constexpr std::array<Pair, 25> kCifar10 = {{
    {{{Op::kInvert, 1, 0}, {Op::kContrast, 2, 6}}},         {{{Op::kRotate, 7, 2}, {Op::kTranslateX, 3, 9}}},
    {{{Op::kSharpness, 8, 1}, {Op::kSharpness, 9, 3}}},     {{{Op::kShearY, 5, 8}, {Op::kTranslateY, 7, 9}}},
    {{{Op::kAutoContrast, 5, 0}, {Op::kEqualize, 9, 0}}},   {{{Op::kShearY, 2, 7}, {Op::kPosterize, 3, 7}}},
    {{{Op::kColor, 4, 3}, {Op::kBrightness, 6, 7}}},        {{{Op::kSharpness, 3, 9}, {Op::kBrightness, 7, 9}}},
    {{{Op::kEqualize, 6, 0}, {Op::kEqualize, 5, 0}}},       {{{Op::kContrast, 6, 7}, {Op::kSharpness, 6, 5}}},
    {{{Op::kColor, 7, 7}, {Op::kTranslateX, 5, 8}}},        {{{Op::kEqualize, 3, 0}, {Op::kAutoContrast, 4, 0}}},
    {{{Op::kTranslateY, 4, 3}, {Op::kSharpness, 2, 6}}},    {{{Op::kBrightness, 9, 6}, {Op::kColor, 2, 8}}},
    {{{Op::kSolarize, 5, 2}, {Op::kInvert, 0, 0}}},         {{{Op::kEqualize, 2, 0}, {Op::kAutoContrast, 6, 0}}},
    {{{Op::kEqualize, 2, 0}, {Op::kEqualize, 6, 0}}},       {{{Op::kColor, 9, 9}, {Op::kEqualize, 6, 0}}},
    {{{Op::kAutoContrast, 8, 0}, {Op::kSolarize, 2, 8}}},   {{{Op::kBrightness, 1, 3}, {Op::kColor, 7, 0}}},
    {{{Op::kSolarize, 4, 5}, {Op::kAutoContrast, 9, 0}}},   {{{Op::kTranslateY, 9, 9}, {Op::kTranslateY, 7, 9}}},
    {{{Op::kAutoContrast, 9, 0}, {Op::kSolarize, 8, 3}}},   {{{Op::kEqualize, 8, 0}, {Op::kInvert, 1, 0}}},
    {{{Op::kTranslateY, 7, 9}, {Op::kAutoContrast, 9, 0}}},
}};

constexpr std::array<Pair, 25> kSvhn = {{
    {{{Op::kShearX, 9, 4}, {Op::kInvert, 2, 0}}},       {{{Op::kShearY, 9, 8}, {Op::kInvert, 7, 0}}},
    {{{Op::kEqualize, 6, 0}, {Op::kSolarize, 6, 6}}},   {{{Op::kInvert, 9, 0}, {Op::kEqualize, 6, 0}}},
    {{{Op::kEqualize, 6, 0}, {Op::kRotate, 9, 3}}},     {{{Op::kShearX, 9, 4}, {Op::kAutoContrast, 8, 0}}},
    {{{Op::kShearY, 9, 8}, {Op::kInvert, 4, 0}}},       {{{Op::kShearY, 9, 5}, {Op::kSolarize, 2, 6}}},
    {{{Op::kInvert, 9, 0}, {Op::kAutoContrast, 8, 0}}}, {{{Op::kEqualize, 6, 0}, {Op::kRotate, 9, 3}}},
    {{{Op::kShearX, 9, 4}, {Op::kSolarize, 3, 3}}},     {{{Op::kShearY, 8, 8}, {Op::kInvert, 7, 0}}},
    {{{Op::kEqualize, 9, 0}, {Op::kTranslateY, 6, 6}}}, {{{Op::kInvert, 9, 0}, {Op::kEqualize, 6, 0}}},
    {{{Op::kContrast, 3, 3}, {Op::kRotate, 8, 4}}},     {{{Op::kInvert, 8, 0}, {Op::kTranslateY, 0, 2}}},
    {{{Op::kShearY, 7, 6}, {Op::kSolarize, 4, 8}}},     {{{Op::kInvert, 6, 0}, {Op::kRotate, 8, 4}}},
    {{{Op::kShearY, 3, 7}, {Op::kTranslateX, 9, 3}}},   {{{Op::kShearX, 1, 6}, {Op::kInvert, 6, 0}}},
    {{{Op::kSolarize, 7, 2}, {Op::kTranslateY, 6, 7}}}, {{{Op::kShearY, 8, 4}, {Op::kInvert, 8, 0}}},
    {{{Op::kShearX, 7, 9}, {Op::kTranslateY, 8, 3}}},   {{{Op::kShearY, 8, 5}, {Op::kAutoContrast, 7, 0}}},
    {{{Op::kShearX, 7, 2}, {Op::kInvert, 1, 0}}},
}};

}  // namespace

std::span<const AutoAugmentPair> auto_augment_pairs(AutoAugmentPolicy policy) {
  switch (policy) {
    case AutoAugmentPolicy::kImagenet:
      return kImagenet;
    case AutoAugmentPolicy::kCifar10:
      return kCifar10;
    case AutoAugmentPolicy::kSvhn:
      return kSvhn;
    case AutoAugmentPolicy::kNone:
    case AutoAugmentPolicy::kRand:
    case AutoAugmentPolicy::kTrivial:
    case AutoAugmentPolicy::kTimmRand:
      return {};
  }
  return {};
}

}  // namespace trainyard::data
