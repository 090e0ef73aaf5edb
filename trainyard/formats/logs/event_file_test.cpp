#include "trainyard/formats/logs/event_file.h"

#include <array>
#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>
#include <protozero/pbf_writer.hpp>
#include <unistd.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/protobuf_text.h"

namespace trainyard::formats::event_file_test {
namespace {

using std::string_literals::operator""s;

std::vector<Event> read_events(const std::string& path) {
  const auto file = core::local_file_system().open_read(path);
  EventFileReader reader(*file);
  std::vector<Event> events;
  while (std::optional<Event> event = reader.next()) events.push_back(*event);
  return events;
}

Event sample_event() {
  return {.wall_time = 1234.5,
          .step = 100,
          .values = {{"loss", 2.25F},
                     {"gradient", make_histogram(std::vector<float>{-1, 0, 0.5, 0.5, 2})},
                     {"input", EncodedImage{.height = 2, .width = 3, .channels = 1, .data = "\x89PNG\0"s}},
                     {"note", SummaryText{"**bold**"}}}};
}

EventFileOptions fixed_clock(double& now) {
  return {.flush_seconds = 30, .clock = [&now] { return now; }, .hostname = "host"};
}

TEST(EventFile, MessagesComeBack) {
  const Event event = sample_event();
  EXPECT_EQ(decode_event(encode_event(event)).value(), event);
  const Event start{.wall_time = 1, .step = 7, .session_start = true};
  EXPECT_EQ(decode_event(encode_event(start)).value(), start);
  EXPECT_EQ(decode_event("").value(), Event{});
}

// {wall_time: 1.5, step: 300, summary: {value: {tag: "a", simple_value: 1}}} by the wire format's rules.
TEST(EventFile, MessageBytes) {
  EXPECT_EQ(encode_event({.wall_time = 1.5, .step = 300, .values = {{"a", 1.0F}}}),
            "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"
            "\x10\xac\x02"
            "\x2a\x0a\x0a\x08\x0a\x01\x61\x15\x00\x00\x80\x3f"s);
}

// Field numbers and values of enums are those of event.proto, summary.proto, histogram.proto and tensor.proto.
TEST(EventFile, WritesTheFieldsOfTensorFlowsMessages) {
  const Histogram histogram{
      .min = 1, .max = 2, .count = 3, .sum = 4, .sum_squares = 5, .bucket_limits = {6, 7}, .buckets = {8, 9}};
  const Event event{.wall_time = 1.5,
                    .step = 7,
                    .values = {{"loss", 2.25F},
                               {"gradient", histogram},
                               {"input", EncodedImage{.height = 2, .width = 3, .channels = 4, .data = "png"}},
                               {"note", SummaryText{"**bold**"}}},
                    .file_version = "version",
                    .session_start = true};
  using enum FieldContent;
  const FieldContents contents = {{"5", kMessage},           {"5.1", kMessage},   {"5.1.4", kMessage},
                                  {"5.1.5", kMessage},       {"5.1.8", kMessage}, {"5.1.9", kMessage},
                                  {"5.1.9.1", kMessage},     {"7", kMessage},     {"5.1.5.6", kPackedDouble},
                                  {"5.1.5.7", kPackedDouble}};
  EXPECT_EQ(message_text(encode_event(event), contents),
            "1: 1.5\n2: 7\n3: 'version'\n7.1: 1\n"
            "5.1.1: 'loss'\n5.1.2: 2.25\n"
            "5.1.1: 'gradient'\n5.1.5.1: 1\n5.1.5.2: 2\n5.1.5.3: 3\n5.1.5.4: 4\n5.1.5.5: 5\n"
            "5.1.5.6: 6 7\n5.1.5.7: 8 9\n"
            "5.1.1: 'input'\n5.1.4.1: 2\n5.1.4.2: 3\n5.1.4.3: 4\n5.1.4.4: 'png'\n"
            "5.1.1: 'note'\n5.1.8.1: 7\n5.1.8.2: ''\n5.1.8.8: '**bold**'\n5.1.9.1.1: 'text'\n5.1.9.4: 2\n");
}

// What other programs may write: values of other plugins, several strings, lists that are not packed.
TEST(EventFile, ReadsValuesOfOtherWriters) {
  const auto text_of = [](const std::string& plugin, const std::vector<std::string>& strings) {
    std::string event;
    {
      protozero::pbf_writer message(event);
      protozero::pbf_writer summary(message, 5);
      protozero::pbf_writer value(summary, 1);
      value.add_string(1, "note");
      {
        protozero::pbf_writer tensor(value, 8);
        for (const std::string& string : strings) tensor.add_string(8, string);
      }
      protozero::pbf_writer metadata(value, 9);
      protozero::pbf_writer plugin_data(metadata, 1);
      plugin_data.add_string(1, plugin);
    }
    core::Result<Event> decoded = decode_event(event);
    const auto* const text = decoded.ok() ? std::get_if<SummaryText>(&decoded.value().values.at(0).value) : nullptr;
    return text == nullptr ? std::string("no text") : text->markdown;
  };
  EXPECT_EQ(text_of("text", {"first", "second"}), "first");
  EXPECT_EQ(text_of("text", {}), "no text");
  EXPECT_EQ(text_of("images", {"first"}), "no text");

  std::string event;
  {
    protozero::pbf_writer message(event);
    protozero::pbf_writer summary(message, 5);
    protozero::pbf_writer value(summary, 1);
    protozero::pbf_writer histogram(value, 5);
    for (const double limit : {1.0, 2.0}) histogram.add_double(6, limit);
    for (const double count : {3.0, 4.0}) histogram.add_double(7, count);
  }
  core::Result<Event> decoded = decode_event(event);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<Histogram>(decoded.value().values.at(0).value),
            (Histogram{.bucket_limits = {1, 2}, .buckets = {3, 4}}));
}

TEST(EventFile, NamesTheFileAndWritesTheVersionFirst) {
  const core::TempDir directory;
  double now = 1700000000.75;
  EventFileWriter first(core::local_file_system(), directory.file("new/run"), fixed_clock(now));
  EXPECT_EQ(first.path(), directory.file("new/run/events.out.tfevents.1700000000.host"));
  EXPECT_EQ(read_events(first.path()), (std::vector<Event>{{.wall_time = now, .file_version = "brain.Event:2"}}))
      << "visible at once";
  // Within the same second, nothing is overwritten.
  EventFileWriter second(core::local_file_system(), directory.file("new/run"), fixed_clock(now));
  EXPECT_EQ(second.path(), directory.file("new/run/events.out.tfevents.1700000000.host.1"));
}

TEST(EventFile, EventsAreVisibleAfterTheFlushTime) {
  const core::TempDir directory;
  double now = 1000;
  EventFileWriter writer(core::local_file_system(), directory.path(), fixed_clock(now));
  for (const int seconds : {10, 10, 10}) {
    EXPECT_EQ(read_events(writer.path()).size(), 1U);
    now += seconds;
    writer.write(sample_event());
  }
  EXPECT_EQ(read_events(writer.path()).size(), 4U);
  writer.write(sample_event());
  EXPECT_EQ(read_events(writer.path()).size(), 4U);
  writer.flush();
  EXPECT_EQ(read_events(writer.path()).size(), 5U);
  writer.write({.step = 5});
  writer.close();
  const std::vector<Event> events = read_events(writer.path());
  EXPECT_EQ(events[4], sample_event());
  EXPECT_EQ(events[5], (Event{.wall_time = 1030, .step = 5}));
}

TEST(EventFile, RefusesANegativeFlushTime) {
  const core::TempDir directory;
  for (const double seconds : {-1.0, std::nan("")}) {
    EXPECT_THROW(EventFileWriter(core::local_file_system(), directory.path(), {.flush_seconds = seconds}), core::Error);
  }
}

TEST(EventFile, HistogramCountsByDefinition) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(std::sin(static_cast<float>(i)) * std::pow(10.0F, (i % 7) - 3));
  values.push_back(0);
  std::vector<float> with_others = values;
  with_others.push_back(std::numeric_limits<float>::quiet_NaN());
  with_others.push_back(std::numeric_limits<float>::infinity());
  const Histogram histogram = make_histogram(with_others);
  EXPECT_EQ(histogram.count, 1001);
  EXPECT_EQ(histogram.min, *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(histogram.max, *std::max_element(values.begin(), values.end()));
  EXPECT_DOUBLE_EQ(histogram.sum, std::accumulate(values.begin(), values.end(), 0.0));
  EXPECT_DOUBLE_EQ(
      histogram.sum_squares,
      std::accumulate(values.begin(), values.end(), 0.0, [](double sum, double value) { return sum + value * value; }));
  ASSERT_EQ(histogram.buckets.size(), histogram.bucket_limits.size());
  double before = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < histogram.buckets.size(); ++i) {
    const double limit = histogram.bucket_limits[i];
    EXPECT_EQ(histogram.buckets[i],
              std::count_if(values.begin(), values.end(), [&](float v) { return v >= before && v < limit; }));
    before = limit;
  }
  EXPECT_GT(histogram.buckets.back(), 0);
  EXPECT_EQ(histogram.buckets.front(), 0) << "tells where the first used bucket begins";
}

// TensorFlow's limits: 1e-12, each 1.1 times the one before it, below 1e20, then the largest double; the same below 0.
TEST(EventFile, HistogramHasTensorFlowsLimits) {
  const auto limits_around = [](double value) {
    HistogramCounter counter;
    counter.add(value);
    return counter.histogram().bucket_limits;
  };
  double least = 1e-12, last = 1e-12;
  while (least <= 1) least *= 1.1;
  while (last * 1.1 < 1e20) last *= 1.1;
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(limits_around(0), (std::vector<double>{0, 1e-12}));
  EXPECT_EQ(limits_around(-1e-13), (std::vector<double>{-1e-12, 0}));
  EXPECT_EQ(limits_around(2e20), (std::vector<double>{last, largest}));
  EXPECT_EQ(limits_around(-2e20), (std::vector<double>{-largest, -last}));
  const std::vector<double> around_one = limits_around(1);
  ASSERT_EQ(around_one.size(), 2U);
  EXPECT_EQ(around_one[1], least);
  EXPECT_DOUBLE_EQ(around_one[0], least / 1.1);
}

TEST(EventFile, HistogramOfExtremeValues) {
  EXPECT_EQ(make_histogram({}), Histogram{});
  EXPECT_EQ(make_histogram(std::vector<float>{std::nanf("")}), Histogram{});
  const float largest = std::numeric_limits<float>::max();
  const Histogram histogram = make_histogram(std::vector<float>{-largest, largest});
  EXPECT_EQ(histogram.count, 2);
  EXPECT_EQ(std::accumulate(histogram.buckets.begin(), histogram.buckets.end(), 0.0), 2);
  HistogramCounter counter;
  counter.add(std::numeric_limits<double>::max());
  EXPECT_EQ(counter.histogram().buckets.back(), 1);
}

TEST(EventFile, DamagedMessagesGiveEventsOrErrors) {
  Event sample = sample_event();
  sample.session_start = true;
  const std::string good = encode_event(sample);
  const auto read = [](std::string_view damaged) {
    const core::Result<Event> event = decode_event(damaged);
    if (!event.ok()) {
      EXPECT_EQ(event.error().code(), core::ErrorCode::kCorruptData);
    }
  };
  for_each_truncation(good, read);
  for_each_mutation(good, 5000, read);
}

TEST(EventFile, ADamagedEventIsNamed) {
  const core::TempDir directory;
  TfRecordWriter writer(core::local_file_system().open_write(directory.file("events")));
  writer.write(encode_event(sample_event()));
  writer.write("\xff\xff no event");
  writer.close();
  try {
    read_events(directory.file("events"));
    FAIL() << "read it";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
    EXPECT_NE(error.detail().where.find("events at offset "), std::string::npos) << error.what();
  }
}

TEST(EventFile, AFullDiskIsToldAtEveryWrite) {
  for (int n = 1;; ++n) {
    const core::TempDir directory;
    core::FaultInjector faults;
    faults.fail_writes_from_nth(n, core::Fault::kNoSpace);
    const auto files = core::make_file_system(faults);
    std::optional<core::ErrorCode> code;
    try {
      EventFileWriter writer(*files, directory.file("run"));
      writer.write(sample_event());
      writer.flush();
      writer.close();
    } catch (const core::Error& error) {
      code = error.code();
    }
    if (!faults.reached()) {
      EXPECT_EQ(code, std::nullopt);
      break;
    }
    EXPECT_EQ(code, core::ErrorCode::kNoSpace) << n;
  }
}

// Writes the files that tests/tensorboard_reads_events.py, which sets the folder, opens with TensorBoard's own reader.
TEST(EventFileWriter, WritesFilesForTensorBoard) {
  const core::TempDir temporary;
  const char* given = std::getenv("TRAINYARD_TENSORBOARD_DIR");
  const std::string folder = given != nullptr ? given : temporary.path();
  EventFileOptions options{.hostname = "test"};
  options.clock = [] { return 1700000000.0; };
  EventFileWriter first(core::local_file_system(), folder, options);
  for (int step = 0; step < 10; ++step) first.write({.step = step, .values = {{"loss", 1.0F / (step + 1)}}});
  first.close();
  // The run was resumed at step 8: what the first file says of steps 8 and 9 no longer counts.
  options.clock = [] { return 1700000100.0; };
  EventFileWriter second(core::local_file_system(), folder, options);
  second.write({.step = 8, .session_start = true});
  for (int step = 8; step < 12; ++step) second.write({.step = step, .values = {{"loss", -1.0F}}});
  std::vector<float> values;
  for (int i = -50; i <= 150; ++i) values.push_back(static_cast<float>(i) / 100);
  second.write({.step = 12, .values = {{"weights", make_histogram(values)}}});
  // A PNG of one white pixel.
  second.write(
      {.step = 12,
       .values = {
           {"input", EncodedImage{.height = 1,
                                  .width = 1,
                                  .channels = 1,
                                  .data = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0:~\x9bU\0\0\0\n"
                                          "IDATx\x9c\x63\xf8\x0f\0\1\1\1\0\x1b\xb6\xeeV\0\0\0\0IEND\xae"
                                          "B`\x82"s}}}});
  second.close();
  EXPECT_EQ(read_events(first.path()).size(), 11U);
  EXPECT_EQ(read_events(second.path()).size(), 8U);
}

TEST(EventFile, TheVersionIsVisibleHoweverRarelyEventsAre) {
  const core::TempDir directory;
  double now = 1000;
  EventFileOptions options = fixed_clock(now);
  options.flush_seconds = 1e9;
  EventFileWriter writer(core::local_file_system(), directory.path(), options);
  EXPECT_EQ(read_events(writer.path()).size(), 1U);
  writer.write(sample_event());
  EXPECT_EQ(read_events(writer.path()).size(), 1U);
}

TEST(EventFile, WithoutAFlushTimeEachEventIsVisibleAtOnce) {
  const core::TempDir directory;
  double now = 1000;
  EventFileOptions options = fixed_clock(now);
  options.flush_seconds = 0;
  EventFileWriter writer(core::local_file_system(), directory.path(), options);
  for (const size_t events : {2U, 3U}) {
    writer.write(sample_event());
    EXPECT_EQ(read_events(writer.path()).size(), events);
  }
  options.flush_seconds = -1;
  EXPECT_EQ(core::message_of([&] { options.validate(); }), "flush_seconds is out of range: expected 0 or more, got -1");
}

TEST(EventFile, IsNamedByTimeMachineAndNumber) {
  const core::TempDir directory;
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  const int64_t before = std::time(nullptr);
  const EventFileWriter writer(core::local_file_system(), directory.path());
  const int64_t after = std::time(nullptr) + 1;
  const std::string name = core::base_name(writer.path()), begin = "events.out.tfevents.";
  ASSERT_EQ(name.substr(0, begin.size()), begin);
  EXPECT_EQ(name.substr(begin.size() + 10), "." + std::string(host.data()));
  const int64_t seconds = std::stoll(name.substr(begin.size(), 10));
  EXPECT_TRUE(before <= seconds && seconds <= after) << seconds;
  EXPECT_NEAR(read_events(writer.path()).at(0).wall_time, static_cast<double>(seconds), 60);

  double now = 5;
  for (const char* const end : {"", ".1", ".2"}) {
    const EventFileWriter numbered(core::local_file_system(), directory.path(), fixed_clock(now));
    EXPECT_EQ(core::base_name(numbered.path()), std::string("events.out.tfevents.0000000005.host") + end);
  }
}

// In each message, in front of what is known.
TEST(EventFile, PassesOverFieldsThatItDoesNotKnow) {
  using protozero::pbf_writer;
  const auto add_unknown = [](pbf_writer& message) {
    message.add_string(100, "later");
    message.add_int64(101, 5);
  };
  const std::vector<double> limits = {6, 7}, buckets = {8, 9};
  std::string encoded;
  {
    pbf_writer message(encoded);
    add_unknown(message);
    message.add_double(1, 1.5);
    message.add_int64(2, 7);
    {
      pbf_writer log(message, 7);
      add_unknown(log);
      log.add_enum(1, 1);
    }
    pbf_writer summary(message, 5);
    add_unknown(summary);
    {
      pbf_writer value(summary, 1);
      add_unknown(value);
      value.add_string(1, "loss");
      value.add_float(2, 2.25F);
    }
    {
      pbf_writer value(summary, 1);
      value.add_string(1, "input");
      pbf_writer image(value, 4);
      add_unknown(image);
      image.add_int32(1, 2);
      image.add_int32(2, 3);
      image.add_int32(3, 4);
      image.add_bytes(4, "png");
    }
    {
      pbf_writer value(summary, 1);
      value.add_string(1, "gradient");
      pbf_writer histogram(value, 5);
      add_unknown(histogram);
      for (uint32_t field = 1; field <= 5; ++field) histogram.add_double(field, field);
      histogram.add_packed_double(6, limits.begin(), limits.end());
      histogram.add_packed_double(7, buckets.begin(), buckets.end());
    }
    pbf_writer value(summary, 1);
    value.add_string(1, "note");
    {
      pbf_writer tensor(value, 8);
      add_unknown(tensor);
      tensor.add_string(8, "text");
    }
    pbf_writer metadata(value, 9);
    add_unknown(metadata);
    pbf_writer plugin(metadata, 1);
    add_unknown(plugin);
    plugin.add_string(1, "text");
  }
  const Event expected{.wall_time = 1.5,
                       .step = 7,
                       .values = {{"loss", 2.25F},
                                  {"input", EncodedImage{.height = 2, .width = 3, .channels = 4, .data = "png"}},
                                  {"gradient", Histogram{.min = 1,
                                                         .max = 2,
                                                         .count = 3,
                                                         .sum = 4,
                                                         .sum_squares = 5,
                                                         .bucket_limits = limits,
                                                         .buckets = buckets}},
                                  {"note", SummaryText{"text"}}},
                       .session_start = true};
  EXPECT_EQ(decode_event(encoded).value(), expected);
}

}  // namespace
}  // namespace trainyard::formats::event_file_test
