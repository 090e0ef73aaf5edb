// The default boxes, matches and encodings of tf_cnn_benchmarks with TensorFlow's object detection, and of torchvision
// (tools/golden/ssd_boxes.py).
#include "trainyard/data/detection/default_boxes.h"

#include <array>
#include <sstream>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden_lines.h"

namespace trainyard::data::default_boxes_test {
namespace {

constexpr double kTolerance = 1e-6;

const DefaultBoxes& named(const std::string& name) {
  return name == "ssd300" ? DefaultBoxes::ssd300() : DefaultBoxes::ssd300_vgg16();
}

std::vector<std::string> lines() {
  return core::golden_lines("trainyard/data/testdata/ssd_boxes.txt");
}

TEST(DefaultBoxes, AreThoseOfTheOriginals) {
  int boxes = 0, sums = 0;
  for (const std::string& line : lines()) {
    std::istringstream text(line);
    std::string kind, name;
    text >> kind >> name;
    const std::span<const float> corners = named(name).corners();
    if (kind == "box") {
      size_t number = 0;
      text >> number;
      for (size_t side = 0; side < 4; ++side) {
        float value = 0;
        text >> value;
        EXPECT_NEAR(corners[4 * number + side], value, kTolerance) << line;
      }
      ++boxes;
    }
    if (kind == "sum") {
      for (size_t side = 0; side < 4; ++side) {
        double expected = 0, sum = 0;
        text >> expected;
        for (size_t i = 0; i < corners.size() / 4; ++i) sum += static_cast<double>(1 + i % 251) * corners[4 * i + side];
        EXPECT_NEAR(sum / expected, 1, 1e-7) << line;
      }
      ++sums;
    }
  }
  EXPECT_EQ(boxes, 2 * 144);
  EXPECT_EQ(sums, 2);
}

TEST(DefaultBoxes, EncodeAsTheOriginals) {
  int cases = 0;
  EncodedBoxes encoded;
  int64_t matches = 0;
  const auto check_count = [&] { EXPECT_EQ(matches, encoded.matched); };
  for (const std::string& line : lines()) {
    std::istringstream text(line);
    std::string kind, name;
    text >> kind >> name;
    if (kind == "case") {
      if (cases++ > 0) check_count();
      int64_t matched = 0;
      text >> matched;
      std::vector<double> numbers;
      for (double value = 0; text >> value;) numbers.push_back(value);
      std::vector<Box> boxes(numbers.size() / 5);
      std::vector<int64_t> labels;
      for (size_t i = 0; i < boxes.size(); ++i) {
        const auto side = [&](size_t s) { return static_cast<float>(numbers[4 * i + s]); };
        boxes[i] = {side(0), side(1), side(2), side(3)};
        labels.push_back(static_cast<int64_t>(numbers[4 * boxes.size() + i]));
      }
      encoded = named(name).encode(boxes, labels);
      EXPECT_EQ(encoded.matched, matched) << line;
      EXPECT_EQ(encoded.labels.count_nonzero().item<int64_t>(), matched);
      matches = 0;
    }
    if (kind == "match") {
      ++matches;
      int64_t number = 0, label = 0;
      text >> number >> label;
      EXPECT_EQ(encoded.labels.const_data_ptr<int64_t>()[number], label) << line;
      for (int64_t i = 0; i < 4; ++i) {
        double offset = 0;
        text >> offset;
        // In default boxes, before the division by the scales. torchvision computes in pixels, in single precision.
        const double scale = i < 2 ? 0.1 : 0.2;
        EXPECT_NEAR(scale * encoded.offsets.const_data_ptr<float>()[4 * number + i], scale * offset,
                    (name == "ssd300" ? 1 : 2) * kTolerance)
            << line;
      }
    }
  }
  check_count();
  EXPECT_EQ(cases, 8 + 4);
}

TEST(DefaultBoxes, DecodeWhatTheyEncode) {
  for (const DefaultBoxes* boxes : {&DefaultBoxes::ssd300(), &DefaultBoxes::ssd300_vgg16()}) {
    core::RandomStream random(1, "boxes");
    std::vector<Box> truth;
    for (int i = 0; i < 20; ++i) {
      const float y = random.uniform(0, 0.7F), x = random.uniform(0, 0.7F);
      truth.push_back({y, x, y + random.uniform(0.02F, 0.3F), x + random.uniform(0.02F, 0.3F)});
    }
    std::vector<int64_t> labels(truth.size());
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i + 1);
    const EncodedBoxes encoded = boxes->encode(truth, labels);
    const at::Tensor decoded = boxes->decode(encoded.offsets.unsqueeze(0)).squeeze(0);
    int64_t seen = 0;
    for (int64_t d = 0; d < boxes->size(); ++d) {
      const int64_t label = encoded.labels.const_data_ptr<int64_t>()[d];
      if (label == 0) continue;
      ++seen;
      const Box& box = truth[static_cast<size_t>(label - 1)];
      const float* corners = decoded.const_data_ptr<float>() + 4 * d;
      EXPECT_NEAR(corners[0], box.ymin, 1e-5);
      EXPECT_NEAR(corners[1], box.xmin, 1e-5);
      EXPECT_NEAR(corners[2], box.ymax, 1e-5);
      EXPECT_NEAR(corners[3], box.xmax, 1e-5);
    }
    EXPECT_EQ(seen, encoded.matched);
    EXPECT_GE(seen, 20);
    // Without offsets the default boxes themselves.
    EXPECT_LT((boxes->decode(at::zeros({boxes->size(), 4})) - boxes->corners_tensor()).abs().max().item<float>(),
              1e-6F);
    EXPECT_TRUE(boxes->decode(at::full({boxes->size(), 4}, 1e6)).isfinite().all().item<bool>());
  }
}

TEST(DefaultBoxes, NothingMatchesWithoutBoxes) {
  const EncodedBoxes encoded = DefaultBoxes::ssd300().encode({}, {});
  EXPECT_EQ(encoded.matched, 0);
  EXPECT_EQ(encoded.labels.count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(encoded.offsets.count_nonzero().item<int64_t>(), 0);
}

TEST(DefaultBoxes, RefuseOtherShapes) {
  const std::vector<Box> boxes(2);
  const std::vector<int64_t> labels = {1};
  EXPECT_EQ(core::code_of([&] { static_cast<void>(DefaultBoxes::ssd300().encode(boxes, labels)); }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(core::message_of([&] { static_cast<void>(DefaultBoxes::ssd300().encode(boxes, labels)); }),
              core::Says("each box needs a label", "expected 2 labels, got 1"));
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{8732, 5}, std::vector<int64_t>{4, 8732}, std::vector<int64_t>{8732}}) {
    EXPECT_THAT(core::message_of([&] { static_cast<void>(DefaultBoxes::ssd300().decode(at::zeros(sizes))); }),
                core::Says("expected [..., 8732, 4], got " + std::to_string(sizes.size()) + " dimensions"));
  }
  EXPECT_EQ(core::code_of([] {
              static_cast<void>(DefaultBoxes::ssd300().decode(at::zeros({100, 4})));
            }),
            core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::data::default_boxes_test
