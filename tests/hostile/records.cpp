// Records and what data sets are made of: TFRecord, event files, tf.Example, tar, CSV, npy and record indexes.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tests/hostile/hostile.h"
#include <fmt/format.h>
#include <protozero/pbf_writer.hpp>

#include "trainyard/formats/containers/tar.h"
#include "trainyard/formats/logs/event_file.h"
#include "trainyard/formats/records/csv.h"
#include "trainyard/formats/records/record_index.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::hostile {
namespace {

using core::ErrorCode;
using formats::MemoryFile;

// A file to write that stays in memory.
class WrittenText : public core::WritableFile {
 public:
  explicit WrittenText(std::string& content) : content_(content) {}
  const std::string& path() const override { return path_; }
  void write(std::span<const std::byte> bytes) override { content_ += as_text(bytes); }
  using WritableFile::write;
  void flush() override {}
  void sync() override {}
  void close() override {}

 private:
  const std::string path_ = "memory";
  std::string& content_;
};

struct RecordFile {
  std::string content{};
  std::vector<std::string> records{};
  std::vector<size_t> ends{};  // of each record in the file
};

RecordFile any_records(Case& drawn) {
  RecordFile file;
  formats::TfRecordWriter writer(std::make_unique<WrittenText>(file.content));
  for (int64_t i = drawn.below(12); i > 0; --i) {
    file.records.push_back(drawn.bytes(drawn.below(200)));
    writer.write(file.records.back());
    file.ends.push_back(file.content.size());
  }
  writer.close();
  return file;
}

// Reads `content`, in which everything before `place` is as it was written: those records must come out, and none that
// was not written. Returns true when reading ended with the last record, and false when it ended with an error.
bool read_records(const std::string& content, const RecordFile& good, size_t place) {
  const MemoryFile file(content);
  formats::TfRecordReader reader(file);
  size_t count = 0;
  const bool ended = taken("TFRecords", [&] {
    for (std::string record; reader.next(record); ++count) {
      check(count < good.records.size() && record == good.records[count], "a record that was not written came out");
    }
  });
  const auto whole =
      static_cast<size_t>(std::count_if(good.ends.begin(), good.ends.end(), [&](size_t end) { return end <= place; }));
  check(count >= whole, fmt::format("{} records came out, {} are whole", count, whole));
  if (!ended) {
    const std::string message = refused(ErrorCode::kCorruptData, "TFRecords", [&] {
      std::string record;
      reader.next(record);
    });
    check(message.find(fmt::format("{}", reader.offset())) != std::string::npos, "no offset in: " + message);
  }
  return ended;
}

std::string run_tfrecord(Case& drawn) {
  const RecordFile good = any_records(drawn);
  std::string content = good.content;
  switch (drawn.below(4)) {
    case 0: {
      check(read_records(content, good, content.size()), "whole TFRecords were refused");
      std::string buffer;
      const MemoryFile file(content);
      const std::vector<formats::RecordSpan> spans = formats::index_tfrecord(file);
      check(spans.size() == good.records.size(), "the index has another number of records");
      for (size_t i = 0; i < spans.size(); ++i) {
        check(formats::read_tfrecord(file, spans[i], buffer).value() == good.records[i], "the index has other records");
      }
      return "TFRecord whole";
    }
    case 1: {
      content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()) + 1)));
      const bool at_end = content.empty() || std::count(good.ends.begin(), good.ends.end(), content.size()) > 0;
      check(read_records(content, good, content.size()) == at_end, "cut TFRecords: the end was missed");
      return "TFRecord cut";
    }
    case 2: {
      if (content.empty()) return "TFRecord empty";
      const std::string before = content;
      drawn.flip_bit(content);
      const auto place =
          static_cast<size_t>(std::mismatch(content.begin(), content.end(), before.begin()).first - content.begin());
      check(!read_records(content, good, place), "a flipped bit in TFRecords was not found");
      return "TFRecord bit flipped";
    }
    default: {
      content += drawn.bytes(drawn.between(1, 40));
      check(!read_records(content, good, good.content.size()), "noise behind TFRecords was taken for a record");
      return "TFRecord noise behind";
    }
  }
}

std::string run_events(Case& drawn) {
  std::vector<formats::Event> events;
  std::string content;
  formats::TfRecordWriter writer(std::make_unique<WrittenText>(content));
  for (int64_t i = drawn.between(1, 6); i > 0; --i) {
    formats::Event event{.wall_time = static_cast<double>(drawn.below(1'000'000)), .step = drawn.below(1 << 20)};
    event.values.push_back({.tag = fmt::format("tag{}", drawn.below(10)), .value = drawn.draw.uniform()});
    if (drawn.draw.next_bool())
      event.values.push_back({.tag = "text", .value = formats::SummaryText{.markdown = "words"}});
    writer.write(formats::encode_event(event));
    events.push_back(event);
  }
  const bool damaged = drawn.draw.next_bool();
  if (damaged) drawn.flip_bit(content);
  const MemoryFile file(content);
  formats::EventFileReader reader(file);
  size_t count = 0;
  const bool ended = taken("events", [&] {
    while (const std::optional<formats::Event> event = reader.next()) {
      check(count < events.size() && *event == events[count], "another event came out than was written");
      ++count;
    }
  });
  check(ended == !damaged && (damaged || count == events.size()), "events: damage was missed, or seen where none is");
  return damaged ? "events bit flipped" : "events whole";
}

std::string run_example(Case& drawn) {
  std::vector<int64_t> integers;
  std::vector<float> floats;
  for (int64_t i = drawn.below(8); i > 0; --i) {
    integers.push_back(static_cast<int64_t>(drawn.draw.next_u64()));
    floats.push_back(drawn.draw.uniform());
  }
  const std::string text = drawn.bytes(drawn.below(50));
  std::string features;
  const auto add = [&](std::string_view name, int kind, const auto& fill) {
    std::string list, feature, entry;
    fill(list);
    protozero::pbf_writer(feature).add_message(kind, list);
    protozero::pbf_writer writer(entry);
    writer.add_string(1, name.data(), name.size());
    writer.add_message(2, feature);
    protozero::pbf_writer(features).add_message(1, entry);
  };
  add("bytes", 1, [&](std::string& list) { protozero::pbf_writer(list).add_bytes(1, text); });
  add("floats", 2,
      [&](std::string& list) { protozero::pbf_writer(list).add_packed_float(1, floats.begin(), floats.end()); });
  add("integers", 3,
      [&](std::string& list) { protozero::pbf_writer(list).add_packed_int64(1, integers.begin(), integers.end()); });
  std::string record;
  protozero::pbf_writer(record).add_message(1, features);
  const bool whole = drawn.below(3) == 0;
  if (!whole) {
    for (int64_t i = drawn.between(1, 3); i > 0; --i) drawn.flip_bit(record);
    if (drawn.below(4) == 0) record.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(record.size()))));
  }
  // No checksum says that a value changed; only memory is at stake here.
  auto example = formats::ExampleView::parse(record);
  if (!example.ok()) {
    check(!whole, "a whole tf.Example was refused");
    return "tf.Example damaged, refused";
  }
  auto bytes = example.value().bytes_list("bytes");
  auto numbers = example.value().int64_list("integers");
  auto reals = example.value().float_list("floats");
  if (whole) {
    check(
        bytes.value().size() == 1 && bytes.value()[0] == text && numbers.value() == integers && reals.value() == floats,
        "a whole tf.Example has other values");
    return "tf.Example whole";
  }
  check((!numbers.ok() || numbers.value().size() <= record.size()) &&
            (!reals.ok() || reals.value().size() <= record.size()),
        "a list is longer than its record");
  return "tf.Example damaged, read";
}

std::string run_tar(Case& drawn) {
  std::string content;
  std::vector<std::string> names, bodies;
  formats::TarWriter writer(std::make_unique<WrittenText>(content));
  for (int64_t i = drawn.between(1, 6); i > 0; --i) {
    names.push_back(fmt::format("{}/{:04}.jpg", std::string(static_cast<size_t>(drawn.between(1, 150)), 'a'), i));
    bodies.push_back(drawn.bytes(drawn.below(1500)));
    writer.write(names.back(), bodies.back());
  }
  writer.close();
  const std::string good = content;
  const int64_t how = drawn.below(4);
  if (how == 1) drawn.flip_bit(content);
  if (how == 2) content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))));
  if (how == 3) content.insert(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))), drawn.bytes(7));
  std::vector<formats::TarMember> members;
  const MemoryFile file(content);
  const bool read = taken("a tar archive", [&] { members = formats::index_tar(file); });
  check(read || how != 0, "a whole archive was refused");
  if (!read) return "tar damaged, refused";
  // Headers have checksums: names and sizes are those that were written. Contents have none.
  check(members.size() <= names.size() && (how != 0 || members.size() == names.size()),
        "an archive has files that were not written");
  for (size_t i = 0; i < members.size(); ++i) {
    // A name of more than 100 bytes is itself a content.
    check((how != 0 && names[i].size() > 100) || members[i].name == names[i], "an archive has a file of another name");
    check(members[i].size == bodies[i].size(), "an archive has a file of another size");
    if (how == 0) check(content.substr(members[i].offset, members[i].size) == bodies[i], "a file has other bytes");
  }
  return how == 0 ? "tar whole" : "tar damaged, read";
}

std::string run_csv(Case& drawn) {
  const int64_t columns = drawn.between(1, 5);
  std::vector<std::vector<std::string>> rows(static_cast<size_t>(drawn.between(1, 8)));
  std::string text;
  constexpr std::string_view kLetters = "ab,\"\n\r; ";
  for (std::vector<std::string>& row : rows) {
    for (int64_t c = 0; c < columns; ++c) {
      std::string field;
      for (int64_t i = drawn.below(6); i > 0; --i) {
        field += kLetters[static_cast<size_t>(drawn.below(static_cast<int64_t>(kLetters.size())))];
      }
      text += c == 0 ? "\"" : ",\"";
      for (const char letter : field) text += letter == '"' ? "\"\"" : std::string(1, letter);
      text += '"';
      row.push_back(field);
    }
    text += drawn.draw.next_bool() ? "\r\n" : "\n";
  }
  const auto read = [](const std::string& content) {
    std::vector<std::vector<std::string>> found;
    formats::read_csv(content, "input", [&](formats::CsvRow& row) { found.push_back(row.fields); });
    return found;
  };
  switch (drawn.below(4)) {
    case 0:
      check(read(text) == rows, "CSV has other fields");
      return "CSV whole";
    case 1:
      refused(ErrorCode::kCorruptData, "a quote that does not end", [&] { read(text + "\"open"); });
      return "CSV open quote";
    case 2:
      refused(ErrorCode::kCorruptData, "a row with more fields",
              [&] { read(text + std::string(columns, ',') + "\n"); });
      return "CSV more fields";
    default:
      refused(ErrorCode::kCorruptData, "a null byte", [&] {
        std::string content = text;
        content.insert(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))), 1, '\0');
        read(content);
      });
      return "CSV null byte";
  }
}

std::string run_npy(Case& drawn) {
  std::vector<int64_t> shape;
  int64_t count = 1;
  for (int64_t i = drawn.below(4); i > 0; --i) {
    shape.push_back(drawn.below(6));
    count *= shape.back();
  }
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(drawn.draw.uniform());
  std::string content = formats::encode_npy<float>(shape, values);
  const std::string good = content;
  switch (drawn.below(4)) {
    case 0: {
      const formats::NpyArray array = formats::read_npy(MemoryFile(content));
      const auto read = array.values<float>();
      check(array.shape == shape && std::equal(read.begin(), read.end(), values.begin(), values.end()),
            "npy has other values");
      return "npy whole";
    }
    case 1:
      content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))));
      refused(ErrorCode::kCorruptData, "npy cut", [&] { formats::read_npy(MemoryFile(content)); });
      return "npy cut";
    case 2:
      content += drawn.bytes(drawn.between(1, 9));
      refused(ErrorCode::kCorruptData, "npy with bytes behind", [&] { formats::read_npy(MemoryFile(content)); });
      return "npy bytes behind";
    default: {
      // A shape that claims more than memory has: refused before anything is read.
      const size_t at = content.find("'shape': (") + 10;
      content.replace(at, std::min<size_t>(20, content.size() - at), "9223372036854775807,");
      const MemoryFile file(content);
      if (taken("npy of a huge shape", [&] { formats::read_npy(file); })) throw Fault("npy of a huge shape was taken");
      check(file.longest_read() <= content.size(), "npy of a huge shape: more was read than there is");
      return "npy huge shape";
    }
  }
}

std::string run_index(Case& drawn) {
  std::string text;
  uint64_t offset = 0;
  const int64_t records = drawn.between(1, 10);
  for (int64_t i = 0; i < records; ++i) {
    const uint64_t bytes = formats::kTfRecordFrameBytes + static_cast<uint64_t>(drawn.below(1000));
    text += fmt::format("{} {}\n", offset, bytes);
    offset += bytes;
  }
  const int64_t how = drawn.below(3);
  if (how == 1) drawn.flip_bit(text);
  if (how == 2)
    text.insert(static_cast<size_t>(drawn.below(static_cast<int64_t>(text.size()))), "99999999999999999999");
  std::optional<formats::RecordIndex> index;
  const bool read = taken("a record index", [&] { index = formats::parse_record_index(text); });
  check(read || how != 0, "a whole index was refused");
  check(how != 0 || (index->size() == static_cast<size_t>(records) && index->file_size() == offset),
        "a whole index has other records");
  return how == 0 ? "index whole" : read ? "index damaged, read" : "index damaged, refused";
}

}  // namespace

std::string run_records(Case& drawn) {
  switch (drawn.below(8)) {
    case 0:
    case 1:
      return run_tfrecord(drawn);
    case 2:
      return run_events(drawn);
    case 3:
      return run_example(drawn);
    case 4:
      return run_tar(drawn);
    case 5:
      return run_csv(drawn);
    case 6:
      return run_npy(drawn);
    default:
      return run_index(drawn);
  }
}

}  // namespace trainyard::hostile
