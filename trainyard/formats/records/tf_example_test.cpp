#include "trainyard/formats/records/tf_example.h"

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <protozero/pbf_writer.hpp>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/formats/testing/hostile_input.h"

namespace trainyard::formats::tf_example_test {
namespace {

using std::string_literals::operator""s;

std::string sample() {
  ExampleBuilder builder;
  builder.add_bytes(kImageEncoded, "\xff\xd8 jpeg \0 bytes"s);
  builder.add_int64(kImageClassLabel, 17);
  builder.add_int64("negative", -3);
  builder.add_floats(kImageBoxXMin, std::vector<float>{0.25F, 0.5F, -1.0F});
  builder.add_floats("empty", {});
  return builder.build();
}

// Reads every feature in every way; what comes out does not matter, only that it comes out as a value.
void read_everything(std::string_view record) {
  core::Result<ExampleView> example = ExampleView::parse(record);
  if (!example.ok()) {
    EXPECT_EQ(example.error().code(), core::ErrorCode::kCorruptData);
    return;
  }
  for (const std::string_view name :
       {kImageEncoded, kImageClassLabel, std::string_view("negative"), kImageBoxXMin, std::string_view("empty"),
        std::string_view("a"), std::string_view("b"), std::string_view("c")}) {
    const ExampleView& view = example.value();
    view.bytes(name);
    view.int64(name);
    view.float32(name);
    view.bytes_list(name);
    view.int64_list(name);
    view.float_list(name);
  }
}

TEST(TfExample, ReadsWhatItBuilt) {
  const std::string record = sample();
  core::Result<ExampleView> example = ExampleView::parse(record);
  const ExampleView& view = example.value();
  EXPECT_EQ(view.bytes(kImageEncoded).value(), "\xff\xd8 jpeg \0 bytes"s);
  EXPECT_EQ(view.int64(kImageClassLabel).value(), 17);
  EXPECT_EQ(view.int64("negative").value(), -3);
  EXPECT_EQ(view.float_list(kImageBoxXMin).value(), (std::vector<float>{0.25F, 0.5F, -1.0F}));
  EXPECT_TRUE(view.float_list("empty").value().empty());
  EXPECT_TRUE(view.has("empty"));
  EXPECT_FALSE(view.has("image"));
}

TEST(TfExample, ViewsPointIntoTheRecord) {
  const std::string record = sample();
  core::Result<ExampleView> example = ExampleView::parse(record);
  const std::string_view bytes = example.value().bytes(kImageEncoded).value();
  EXPECT_GE(bytes.data(), record.data());
  EXPECT_LE(bytes.data() + bytes.size(), record.data() + record.size());
}

// {"a": int64 [1, 300, -3], "b": float [1, 2], "c": bytes ["\x00\xff"]} as protobuf writes it, with packed lists and
// with one tag a value; and with "a": [-3], which the builder can make. From tools/golden/make_tf_example.py.
const std::string kPacked =
    "\x0a\x38\x0a\x16\x0a\x01\x61\x12\x11\x1a\x0f\x0a\x0d\x01\xac\x02\xfd\xff\xff\xff\xff\xff\xff\xff"
    "\xff\x01\x0a\x11\x0a\x01\x62\x12\x0c\x12\x0a\x0a\x08\x00\x00\x80\x3f\x00\x00\x00\x40\x0a\x0b\x0a"
    "\x01\x63\x12\x06\x0a\x04\x0a\x02\x00\xff"s;
const std::string kUnpacked =
    "\x0a\x39\x0a\x17\x0a\x01\x61\x12\x12\x1a\x10\x08\x01\x08\xac\x02\x08\xfd\xff\xff\xff\xff\xff\xff"
    "\xff\xff\x01\x0a\x11\x0a\x01\x62\x12\x0c\x12\x0a\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40\x0a\x0b"
    "\x0a\x01\x63\x12\x06\x0a\x04\x0a\x02\x00\xff"s;
const std::string kBuilt =
    "\x0a\x35\x0a\x13\x0a\x01\x61\x12\x0e\x1a\x0c\x0a\x0a\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a"
    "\x11\x0a\x01\x62\x12\x0c\x12\x0a\x0a\x08\x00\x00\x80\x3f\x00\x00\x00\x40\x0a\x0b\x0a\x01\x63\x12"
    "\x06\x0a\x04\x0a\x02\x00\xff"s;

TEST(TfExample, ReadsPackedAndUnpackedLists) {
  for (const std::string& record : {kPacked, kUnpacked}) {
    core::Result<ExampleView> example = ExampleView::parse(record);
    EXPECT_EQ(example.value().int64_list("a").value(), (std::vector<int64_t>{1, 300, -3}));
    EXPECT_EQ(example.value().float_list("b").value(), (std::vector<float>{1.0F, 2.0F}));
    EXPECT_EQ(example.value().bytes("c").value(), "\x00\xff"s);
    for_each_truncation(record, read_everything);
    for_each_mutation(record, 3000, read_everything);
  }
}

TEST(TfExample, BuildsTheBytesOfProtobuf) {
  ExampleBuilder builder;
  builder.add_int64("a", -3);
  builder.add_floats("b", std::vector<float>{1.0F, 2.0F});
  builder.add_bytes("c", "\x00\xff"s);
  EXPECT_EQ(builder.build(), kBuilt);
}

TEST(TfExample, TheLastFeatureOfAName) {
  ExampleBuilder builder;
  builder.add_int64("a", 1);
  builder.add_bytes("a", "2");
  const std::string record = builder.build();
  core::Result<ExampleView> example = ExampleView::parse(record);
  EXPECT_EQ(example.value().bytes("a").value(), "2");
}

TEST(TfExample, AbsentWrongOrRepeatedFeaturesAreNamed) {
  const std::string record = sample();
  core::Result<ExampleView> example = ExampleView::parse(record);
  const auto missing = example.value().bytes("image/none");
  ASSERT_FALSE(missing.ok());
  EXPECT_STREQ(
      missing.error().what(),
      "tf.Example does not follow its schema: feature image/none: expected a list of bytes, got no such feature; "
      "check that the data set is the one that was meant");
  const auto wrong = example.value().bytes(kImageClassLabel);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().detail().actual, "a list of int64");
  for (const std::string_view name : {kImageBoxXMin, std::string_view("empty")}) {
    const auto repeated = example.value().float32(name);
    ASSERT_FALSE(repeated.ok());
    EXPECT_EQ(repeated.error().detail().expected, "one value");
  }
}

TEST(TfExample, DamagedMessagesGiveValuesOrErrors) {
  const std::string record = sample();
  int errors = 0;
  for_each_truncation(record, [&](std::string_view part) {
    read_everything(part);
    errors += !ExampleView::parse(part).ok();
  });
  EXPECT_EQ(errors, static_cast<int>(record.size()) - 1) << "all but the empty message";
  for_each_mutation(record, 5000, read_everything);
}

TEST(TfExample, AnImageIsNoExample) {
  EXPECT_FALSE(ExampleView::parse("\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01"s).ok());
  EXPECT_FALSE(ExampleView::parse("\x89PNG\r\n\x1a\n"s).ok());
}

TEST(TfExample, ReadsTheImageNetSample) {
  const auto path = core::shared_data("imagenet_sample/validation-00000-of-00001");
  if (!path) GTEST_SKIP() << core::missing_shared_data("imagenet_sample");
  const auto file = core::local_file_system().open_read(*path);
  TfRecordReader reader(*file);
  for (std::string record; reader.next(record);) {
    core::Result<ExampleView> example = ExampleView::parse(record);
    const ExampleView& view = example.value();
    EXPECT_TRUE(view.bytes(kImageEncoded).value().starts_with("\xff\xd8\xff")) << "a JPEG";
    const int64_t label = view.int64(kImageClassLabel).value();
    EXPECT_TRUE(label >= 1 && label <= 1000) << label;
    EXPECT_FALSE(view.bytes(kImageClassText).value().empty());
    EXPECT_GT(view.int64(kImageHeight).value(), 0);
    EXPECT_GT(view.int64(kImageWidth).value(), 0);
    EXPECT_FALSE(view.bytes(kImageFilename).value().empty());
  }
}

// In each message, in front of what is known.
TEST(TfExample, PassesOverFieldsThatItDoesNotKnow) {
  using protozero::pbf_writer;
  const auto add_unknown = [](pbf_writer& message) {
    message.add_string(100, "later");
    message.add_int64(101, 5);
  };
  std::string record;
  {
    pbf_writer message(record);
    add_unknown(message);
    pbf_writer features(message, 1);
    add_unknown(features);
    // Calls `fill` with the list of a feature, whose kind is the number of its field.
    const auto add = [&](const char* name, uint32_t kind, const std::function<void(pbf_writer&)>& fill) {
      pbf_writer entry(features, 1);
      add_unknown(entry);
      entry.add_string(1, name);
      pbf_writer feature(entry, 2);
      add_unknown(feature);
      pbf_writer list(feature, kind);
      add_unknown(list);
      fill(list);
    };
    add("bytes", 1, [](pbf_writer& list) {
      list.add_int64(1, 5);  // of the type of another list
      list.add_bytes(1, "x");
      list.add_bytes(1, "yz");
    });
    add("floats", 2, [](pbf_writer& list) {
      list.add_int64(1, 5);
      list.add_float(1, 0.5F);
    });
    add("integers", 3, [](pbf_writer& list) {
      list.add_fixed64(1, 9);
      list.add_int64(1, 17);
      list.add_int64(1, -3);
    });
  }
  core::Result<ExampleView> example = ExampleView::parse(record);
  const ExampleView& view = example.value();
  EXPECT_EQ(view.bytes_list("bytes").value(), (std::vector<std::string_view>{"x", "yz"}));
  EXPECT_EQ(view.float_list("floats").value(), std::vector<float>{0.5F});
  EXPECT_EQ(view.int64_list("integers").value(), (std::vector<int64_t>{17, -3}));
}

TEST(TfExample, AMalformedListNamesItsFeature) {
  const auto problem = [](uint32_t kind, const std::string& list, const std::function<void(const ExampleView&)>& read) {
    std::string record;
    {
      protozero::pbf_writer message(record);
      protozero::pbf_writer features(message, 1);
      protozero::pbf_writer entry(features, 1);
      entry.add_string(1, "a");
      protozero::pbf_writer(entry, 2).add_message(kind, list);
    }
    core::Result<ExampleView> example = ExampleView::parse(record);
    return core::message_of([&] { read(example.value()); }, core::ErrorCode::kCorruptData);
  };
  const auto names_it = ::testing::AllOf(::testing::StartsWith("tf.Example is malformed: feature a: got "),
                                         ::testing::EndsWith("; check that the records hold tf.Example messages"));
  EXPECT_THAT(problem(1, "\x0a\x05x", [](const ExampleView& view) { view.bytes_list("a").value(); }), names_it);
  EXPECT_THAT(problem(2, "\x0d\0"s, [](const ExampleView& view) { view.float_list("a").value(); }), names_it);
  EXPECT_THAT(problem(3, "\x08\x80", [](const ExampleView& view) { view.int64_list("a").value(); }), names_it);
  EXPECT_THAT(core::message_of([] { ExampleView::parse("\x0a\x05x").value(); }, core::ErrorCode::kCorruptData),
              ::testing::StartsWith("tf.Example is malformed: got "));
}

TEST(TfExample, SaysHowManyValuesThereAre) {
  const std::string record = sample();
  core::Result<ExampleView> example = ExampleView::parse(record);
  const std::string remedy = "; check that the data set is the one that was meant";
  const auto problem = [&](std::string_view name) {
    return core::message_of([&] { example.value().float32(name).value(); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_EQ(problem(kImageBoxXMin), "tf.Example does not follow its schema: feature " + std::string(kImageBoxXMin) +
                                        ": expected one value, got 3" + remedy);
  EXPECT_EQ(problem("empty"),
            "tf.Example does not follow its schema: feature empty: expected one value, got 0" + remedy);
  EXPECT_EQ(problem("negative"),
            "tf.Example does not follow its schema: feature negative: expected a list of floats, "
            "got a list of int64" +
                remedy);
}

TEST(TfExample, SaysOfWhichKindAFeatureIs) {
  ExampleBuilder builder;
  builder.add_bytes("bytes", "x");
  builder.add_floats("floats", std::vector<float>{0.5F});
  builder.add_int64("integers", 5);
  std::string record = builder.build();
  {
    protozero::pbf_writer message(record);  // is added to what is there
    protozero::pbf_writer features(message, 1);
    protozero::pbf_writer entry(features, 1);
    entry.add_string(1, "none");
  }
  core::Result<ExampleView> example = ExampleView::parse(record);
  const ExampleView& view = example.value();
  EXPECT_TRUE(view.has("none"));
  const auto said = [](const std::function<void()>& read) {
    return core::message_of(read, core::ErrorCode::kCorruptData);
  };
  const auto problem = [](const std::string& name, const std::string& expected, const std::string& actual) {
    return "tf.Example does not follow its schema: feature " + name + ": expected " + expected + ", got " + actual +
           "; check that the data set is the one that was meant";
  };
  const std::string bytes = "a list of bytes", floats = "a list of floats", integers = "a list of int64";
  EXPECT_EQ(said([&] { view.bytes("none").value(); }), problem("none", bytes, "an empty feature"));
  EXPECT_EQ(said([&] { view.int64_list("none").value(); }), problem("none", integers, "an empty feature"));
  EXPECT_EQ(said([&] { view.float_list("nothing").value(); }), problem("nothing", floats, "no such feature"));
  EXPECT_EQ(said([&] { view.int64("bytes").value(); }), problem("bytes", integers, bytes));
  EXPECT_EQ(said([&] { view.bytes_list("floats").value(); }), problem("floats", bytes, floats));
  EXPECT_EQ(said([&] { view.float32("integers").value(); }), problem("integers", floats, integers));
}

}  // namespace
}  // namespace trainyard::formats::tf_example_test
