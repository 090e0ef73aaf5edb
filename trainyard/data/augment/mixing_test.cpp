// Mixup and CutMix against torchvision's transforms.v2: the same draws give the same bits, and draws are distributed
// alike (tools/golden/mix.py).
#include "trainyard/data/augment/mixing.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::data::mixing_test {
namespace {

using core::ErrorCode;
using ::testing::HasSubstr;

constexpr ImageSize kSize{5, 4};
constexpr int kPixels = 3 * 5 * 4;

struct Line {
  std::string kind;
  std::vector<std::string> words;
  double number(size_t i) const { return std::stod(words.at(i)); }
  std::vector<double> numbers_from(size_t first) const {
    std::vector<double> numbers;
    for (size_t i = first; i < words.size(); ++i) numbers.push_back(number(i));
    return numbers;
  }
};

std::vector<Line> golden(const std::string& kind) {
  std::istringstream file(
      core::local_file_system().read_file(core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/mixing.txt")));
  std::vector<Line> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    Line line;
    words >> line.kind;
    for (std::string word; words >> word;) line.words.push_back(word);
    if (line.kind == kind) lines.push_back(line);
  }
  return lines;
}

std::vector<float> two_images() {
  const std::vector<double> numbers = golden("images").at(0).numbers_from(0);
  return {numbers.begin(), numbers.end()};
}

std::vector<float> mixed(const Mix& mix) {
  std::vector<float> images = two_images();
  mix_pair(mix, {}, kSize, images.data(), images.data() + kPixels);
  return images;
}

// The file has what a float holds, as the shortest decimals of its double.
void expect_bits(const std::vector<float>& actual, const Line& line, size_t first) {
  const std::vector<double> expected = line.numbers_from(first);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_EQ(actual[i], static_cast<float>(expected[i])) << i;
}

// Targets [2, 4] of the labels 2 and 0.
void expect_targets(double share, const Line& line, size_t first) {
  const auto own = static_cast<float>(share), rest = static_cast<float>(1 - share);
  const std::vector<float> expected = {rest, 0, own, 0, own, 0, rest, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(static_cast<float>(line.number(first + i)), expected[i]) << i;
}

TEST(Mixing, MixupIsTorchvisionsBitForBit) {
  const std::vector<Line> lines = golden("mixup");
  ASSERT_EQ(lines.size(), 6u);
  for (const Line& line : lines) {
    SCOPED_TRACE(line.words[0]);
    expect_targets(line.number(0), line, 1);
    expect_bits(mixed({.kind = Mix::Kind::kMixup, .share = line.number(0)}), line, 9);
  }
}

TEST(Mixing, CutmixIsTorchvisionsBitForBit) {
  const std::vector<Line> lines = golden("cutmix");
  ASSERT_EQ(lines.size(), 5u);
  for (const Line& line : lines) {
    SCOPED_TRACE(line.words[0]);
    const CropWindow box =
        cutmix_box(line.number(0), static_cast<int>(line.number(1)), static_cast<int>(line.number(2)), kSize);
    expect_targets(1 - box.width * box.height / 20.0, line, 3);
    expect_bits(mixed({.kind = Mix::Kind::kCutmix, .box = box}), line, 11);
  }
}

TEST(Mixing, BoxesAreTorchvisions) {
  const std::vector<Line> lines = golden("box");
  ASSERT_EQ(lines.size(), 60u);
  for (const Line& line : lines) {
    std::vector<int> n;
    for (const double number : line.numbers_from(0)) n.push_back(static_cast<int>(number));
    const CropWindow box = cutmix_box(line.number(2), n[3], n[4], {n[0], n[1]});
    EXPECT_EQ(box, (CropWindow{n[5], n[6], n[7], n[8]}));
    EXPECT_EQ(1 - static_cast<double>(box.width) * box.height / (static_cast<double>(n[0]) * n[1]), line.number(9));
  }
}

// CutMix moves pixels of any size; the other channels last, and mixup of bytes, say so.
TEST(Mixing, BytesAreCutAndNotBlended) {
  std::vector<uint8_t> images(2 * kPixels);
  for (int i = 0; i < 2 * kPixels; ++i) images[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  const ImageForm bytes{.dtype = at::kByte};
  mix_pair({.kind = Mix::Kind::kCutmix, .box = {1, 2, 3, 2}}, bytes, kSize, images.data(), images.data() + kPixels);
  for (int i = 0; i < kPixels; ++i) {
    const int y = i % 20 / 4, x = i % 4;
    const bool inside = y >= 1 && y < 4 && x >= 2;
    EXPECT_EQ(images[static_cast<size_t>(i)], inside ? kPixels + i : i);
    EXPECT_EQ(images[static_cast<size_t>(kPixels + i)], inside ? i : kPixels + i);
  }
  EXPECT_THAT(core::message_of(
                  [&] { mix_pair({.kind = Mix::Kind::kMixup}, bytes, kSize, images.data(), images.data() + kPixels); },
                  ErrorCode::kUnsupported),
              HasSubstr("Byte"));
  EXPECT_THAT(core::message_of([&] { check_mixing({.cutmix_alpha = 1}, {.layout = at::MemoryFormat::ChannelsLast}); },
                               ErrorCode::kUnsupported),
              HasSubstr("channels last"));
  EXPECT_THAT(
      core::message_of([&] { check_mixing({.cutmix_alpha = 1}, {.device = at::kCUDA}); }, ErrorCode::kUnsupported),
      HasSubstr("cuda"));
  check_mixing({}, {.device = at::kCUDA});
}

// Kolmogorov's distance between 100,000 draws of theirs and 200,000 of ours, at nine quantiles: of equal distributions
// it is above 0.008 once in a thousand times. An alpha of 0.44 instead of 0.4 is 0.01 away.
constexpr int kDraws = 200'000;
constexpr double kMostApart = 0.008;

void expect_quantiles(std::vector<double> values, const Line& line, size_t first) {
  std::sort(values.begin(), values.end());
  for (size_t i = first; i < line.words.size(); i += 2) {
    const auto at_most = std::upper_bound(values.begin(), values.end(), line.number(i + 1)) - values.begin();
    EXPECT_NEAR(static_cast<double>(at_most) / static_cast<double>(values.size()), line.number(i), kMostApart)
        << line.kind << " at " << line.number(i + 1);
  }
}

TEST(Mixing, SharesOfMixupAreDistributedAsTorchvisions) {
  const std::vector<Line> lines = golden("mixup_quantiles");
  ASSERT_EQ(lines.size(), 4u);
  for (const Line& line : lines) {
    std::vector<double> shares;
    for (int i = 0; i < kDraws; ++i) {
      core::RandomStream random = mixing_stream(3, 1, i);
      const Mix mix = draw_mix({.mixup_alpha = line.number(0)}, {160, 224}, random);
      EXPECT_EQ(mix.kind, Mix::Kind::kMixup);
      shares.push_back(mix.share);
    }
    expect_quantiles(std::move(shares), line, 1);
  }
}

TEST(Mixing, BoxesAreDistributedAsTorchvisions) {
  const std::vector<Line> lines = golden("cutmix_quantiles");
  ASSERT_EQ(lines.size(), 8u);
  for (const Line& line : lines) {
    const std::string& name = line.words[1];
    std::vector<double> values;
    for (int i = 0; i < kDraws; ++i) {
      core::RandomStream random = mixing_stream(5, 0, i);
      const Mix mix = draw_mix({.cutmix_alpha = line.number(0)}, {160, 224}, random);
      EXPECT_EQ(mix.kind, Mix::Kind::kCutmix);
      values.push_back(name == "share"    ? mix.share
                       : name == "middle" ? 2 * mix.box.x + mix.box.width
                       : name == "height" ? mix.box.height
                                          : mix.box.width);
    }
    expect_quantiles(std::move(values), line, 2);
  }
}

// Beta(alpha, alpha) by its closed forms: mean 1/2, variance 1 / (4 (2 alpha + 1)). Tiny alphas make gamma numbers that
// underflow; their shares are 0 and 1, half of them each.
TEST(Mixing, AnyAlphaGivesSharesOfBeta) {
  for (const double alpha : {1e-3, 0.05, 1.0, 50.0}) {
    double sum = 0, squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      core::RandomStream random = mixing_stream(9, 2, i);
      const double share = draw_mix({.mixup_alpha = alpha}, {8, 8}, random).share;
      ASSERT_TRUE(share >= 0 && share <= 1) << share;
      sum += share;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws / variance, 1, 0.02) << alpha;
  }
}

TEST(Mixing, ChoosesBetweenBothByTheirProbabilities) {
  const MixOptions options{.mixup_alpha = 0.2, .cutmix_alpha = 1, .probability = 0.8, .cutmix_probability = 0.25};
  double none = 0, cutmix = 0;
  for (int i = 0; i < kDraws; ++i) {
    core::RandomStream random = mixing_stream(1, 0, i);
    const Mix mix = draw_mix(options, {32, 32}, random);
    none += mix.kind == Mix::Kind::kNone ? 1 : 0;
    cutmix += mix.kind == Mix::Kind::kCutmix ? 1 : 0;
    EXPECT_TRUE(mix.kind != Mix::Kind::kNone || mix.share == 1);
  }
  EXPECT_NEAR(none / kDraws, 0.2, 0.005);
  EXPECT_NEAR(cutmix / kDraws, 0.8 * 0.25, 0.005);
}

TEST(Mixing, RefusesWhatIsOutOfRange) {
  EXPECT_THAT(core::message_of([&] { MixOptions{.mixup_alpha = -1}.validate(); }, ErrorCode::kInvalidArgument),
              HasSubstr("mixup_alpha"));
  EXPECT_THAT(core::message_of([&] { MixOptions{.cutmix_alpha = INFINITY}.validate(); }, ErrorCode::kInvalidArgument),
              HasSubstr("cutmix_alpha"));
  EXPECT_THAT(core::message_of([&] { MixOptions{.probability = 1.1}.validate(); }, ErrorCode::kInvalidArgument),
              HasSubstr("probability of mixing"));
  EXPECT_THAT(core::message_of([&] { MixOptions{.cutmix_probability = NAN}.validate(); }, ErrorCode::kInvalidArgument),
              HasSubstr("probability of CutMix"));
}

TEST(Mixing, SaysWhichNumberIsOutOfRange) {
  const auto refusal = [](const MixOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(refusal({.mixup_alpha = -1}), "mixup_alpha is out of range: expected 0 or more, got -1");
  EXPECT_EQ(refusal({.cutmix_alpha = -0.5}), "cutmix_alpha is out of range: expected 0 or more, got -0.5");
  EXPECT_EQ(refusal({.probability = 1.5}), "the probability of mixing is out of range: expected 0 to 1, got 1.5");
  EXPECT_EQ(refusal({.cutmix_probability = -0.25}),
            "the probability of CutMix is out of range: expected 0 to 1, got -0.25");
  EXPECT_EQ(refusal({.probability = 0, .cutmix_probability = 0}), "no error");
  EXPECT_EQ(refusal({.probability = 1, .cutmix_probability = 1}), "no error");
  EXPECT_THAT(core::message_of([] { check_mixing({.cutmix_alpha = 1}, {.layout = at::MemoryFormat::ChannelsLast}); },
                               ErrorCode::kUnsupported),
              HasSubstr("got Float on cpu, channels last;"));
  EXPECT_THAT(core::message_of([] { check_mixing({.mixup_alpha = 1}, {.dtype = at::kByte}); }, ErrorCode::kUnsupported),
              HasSubstr("got Byte on cpu;"));
}

// More floats than are fetched ahead of those that are mixed, so that most are mixed in blocks.
TEST(Mixing, LargeImagesAreMixedToTheirEnd) {
  constexpr ImageSize kLarge{37, 29};
  constexpr size_t kFloats = size_t{3} * 37 * 29;
  std::vector<float> first(kFloats + 1), second(kFloats + 1);
  for (size_t i = 0; i <= kFloats; ++i) {
    first[i] = static_cast<float>(i);
    second[i] = 5000 - 2 * static_cast<float>(i);
  }
  const std::vector<float> a = first, b = second;
  mix_pair({.kind = Mix::Kind::kMixup, .share = 0.25}, {}, kLarge, first.data(), second.data());
  for (size_t i = 0; i < kFloats; ++i) {
    ASSERT_EQ(first[i], 0.25F * a[i] + 0.75F * b[i]) << i;
    ASSERT_EQ(second[i], 0.25F * b[i] + 0.75F * a[i]) << i;
  }
  EXPECT_EQ(first[kFloats], a[kFloats]) << "behind the image";
  EXPECT_EQ(second[kFloats], b[kFloats]);
}

}  // namespace
}  // namespace trainyard::data::mixing_test
