// Checkpoints that tools/golden/tensorflow_checkpoints.py wrote with TensorFlow, the values that TensorFlow reads from
// them, and what becomes of damaged ones.
#include "trainyard/formats/tensors/tensorflow_bundle.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <protozero/pbf_writer.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/sstable.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/sstable_builder.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats::tensorflow_bundle_test {
namespace {

using namespace std::string_literals;
using Files = std::map<std::string, std::string>;   // content by the end of the name
using Values = std::map<std::string, std::string>;  // type, shape and bytes in hexadecimal, by name

std::string hexadecimal(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text.empty() ? "-" : text;
}

Files files_of(const std::string& name, int shards) {
  Files files{{".index", testdata("tensorflow/" + name + ".index")}};
  for (int i = 0; i < shards; ++i) {
    const std::string end = fmt::format(".data-{:05}-of-{:05}", i, shards);
    files[end] = testdata("tensorflow/" + name + end);
  }
  return files;
}

TensorFlowCheckpoint open(const Files& files) {
  return read_tensorflow_checkpoint(MemoryFile(files.at(".index")), "memory", [&](int64_t shard, int64_t shards) {
    const auto found = files.find(fmt::format(".data-{:05}-of-{:05}", shard, shards));
    if (found == files.end()) throw core::Error(core::ErrorCode::kNotFound, "no such shard");
    return std::make_unique<MemoryFile>(found->second);
  });
}

Values values_of(const TensorFlowCheckpoint& checkpoint) {
  Values values;
  for (const StoredTensor& tensor : checkpoint.tensors.tensors()) {
    values[tensor.name] = fmt::format("{} [{}] {}", tensor_type_name(tensor.type), fmt::join(tensor.shape, ","),
                                      hexadecimal(checkpoint.tensors.read_bytes(tensor)));
  }
  for (const UnreadTensor& tensor : checkpoint.unread) {
    values[tensor.name] = fmt::format("unread:{} [{}] -", tensor.type, fmt::join(tensor.shape, ","));
  }
  return values;
}

Values values_of(const Files& files) {
  return values_of(open(files));
}

// Returns what tf.train.load_checkpoint gave.
Values expected_values(const std::string& checkpoint) {
  Values values;
  std::istringstream lines(testdata("tensorflow/values.txt"));
  for (std::string of, name, rest; lines >> of >> name && std::getline(lines, rest);) {
    if (of == checkpoint) values[name] = rest.substr(1);
  }
  return values;
}

TEST(TensorFlowBundle, HasTheValuesThatTensorFlowReads) {
  for (const auto& [name, shards] : {std::pair("types", 1), {"compressed", 1}, {"big_endian", 1}, {"parts-7", 2}}) {
    const Values expected = expected_values(name);
    EXPECT_GE(expected.size(), 3U) << name;
    EXPECT_EQ(values_of(files_of(name, shards)), expected) << name;
  }
  const TensorFlowCheckpoint types = open(files_of("types", 1));
  EXPECT_EQ(types.global_step, 12345678901);
  EXPECT_EQ(types.tensors.metadata().at("global_step"), "12345678901");
  EXPECT_EQ(open(files_of("big_endian", 1)).global_step, 12345678901);
  EXPECT_EQ(types.tensors.format(), TensorFileFormat::kTensorFlow);
  EXPECT_EQ(types.tensors.read_floats(*types.tensors.find("uint32")), (std::vector<float>{0, 1, 4294967296.F}));
  EXPECT_EQ(types.tensors.read_floats(*types.tensors.find("half"))[3], -0.625F);
  EXPECT_EQ(open(files_of("parts-7", 2)).global_step, std::nullopt);
}

TEST(TensorFlowBundle, IsOpenedFromItsFolder) {
  const std::string folder = TRAINYARD_SOURCE_DIR "/trainyard/formats/testdata/tensorflow/";
  for (const char* end : {"", ".index", ".data-00000-of-00002", ".data-00001-of-00002"}) {
    const TensorFlowCheckpoint found = open_tensorflow_checkpoint(folder + "parts-7" + end);
    EXPECT_EQ(found.prefix, folder + "parts-7");
    EXPECT_EQ(found.tensors.tensors().size(), 3U);
  }
  EXPECT_EQ(open_tensor_file(folder + "types").find("double")->type, TensorType::kFloat64);
}

// tests/tensorflow_checkpoints_test.py, which sets the variables, compares with TensorFlow itself.
TEST(TensorFlowBundle, WritesTheValuesOfACheckpoint) {
  const char *given = std::getenv("TRAINYARD_TENSORFLOW_CHECKPOINT"),
             *output = std::getenv("TRAINYARD_TENSORFLOW_VALUES");
  const Values values = values_of(open_tensorflow_checkpoint(
      given != nullptr ? given : TRAINYARD_SOURCE_DIR "/trainyard/formats/testdata/tensorflow/parts-7"));
  std::string text;
  for (const auto& [name, value] : values) text += fmt::format("{} {}\n", name, value);
  if (output != nullptr) return core::local_file_system().write_file_atomically(output, text);
  EXPECT_EQ(values, expected_values("parts-7"));
}

// Each cut is an error; each changed byte is an error, or nothing that is read.
TEST(TensorFlowBundle, EachCutAndEachChangedByteIsFound) {
  for (const auto& [name, shards] : {std::pair("types", 1), {"compressed", 1}, {"big_endian", 1}, {"parts-7", 2}}) {
    const Files good = files_of(name, shards);
    const Values expected = values_of(good);
    size_t harmless = 0;
    for (const auto& [end, content] : good) {
      const auto read_with = [&, &end = end](std::string_view changed) {
        Files files = good;
        files[end] = std::string(changed);
        return values_of(files);
      };
      for_each_truncation(content, [&](std::string_view part) {
        EXPECT_THROW(read_with(part), core::Error) << name << end << " cut to " << part.size();
      });
      for (size_t i = 0; i < content.size(); ++i) {
        for (const int flipped : {1, 0x80, 0xFF}) {
          std::string changed = content;
          changed[i] = static_cast<char>(changed[i] ^ flipped);
          try {
            EXPECT_EQ(read_with(changed), expected) << name << end << " at " << i;
            ++harmless;
          } catch (const core::Error&) {
          }
        }
      }
    }
    // Texts and complex numbers (48 bytes), the place of the table's empty part, and what fills the footer.
    EXPECT_LE(harmless, 3U * 110U) << name;
  }
}

TEST(TensorFlowBundle, AnswersDamageWithAnError) {
  for (const auto& [name, shards] : {std::pair("types", 1), {"compressed", 1}, {"parts-7", 2}}) {
    const Files good = files_of(name, shards);
    for_each_mutation(good.at(".index"), 2000, [&](const std::string& index) {
      Files files = good;
      files[".index"] = index;
      expect_value_or_error([&] { values_of(files); });
    });
  }
}

struct MadeEntry {
  int type = 1;
  std::vector<int64_t> shape{};
  int64_t shard = 0, offset = 0, size = 0;
  std::string numbers{};  // whose checksum it says
  std::vector<BundleSlice> slices{};
};

std::string encode(const MadeEntry& made) {
  std::string shape;
  for (const int64_t size : made.shape) {
    std::string dimension;
    protozero::pbf_writer(dimension).add_int64(1, size);
    protozero::pbf_writer(shape).add_message(2, dimension);
  }
  std::string entry;
  protozero::pbf_writer writer(entry);
  writer.add_enum(1, made.type);
  writer.add_message(2, shape);
  writer.add_int32(3, static_cast<int32_t>(made.shard));
  writer.add_int64(4, made.offset);
  writer.add_int64(5, made.size);
  writer.add_fixed32(6, masked_crc32c(made.numbers));
  for (const BundleSlice& slice : made.slices) {
    std::string message;
    for (const BundleExtent& extent : slice) {
      std::string encoded;
      protozero::pbf_writer fields(encoded);
      if (extent.length >= 0) {
        fields.add_int64(1, extent.start);
        fields.add_int64(2, extent.length);
      }
      protozero::pbf_writer(message).add_message(1, encoded);
    }
    writer.add_message(7, message);
  }
  return entry;
}

const std::string kHeader = "\x08\x01\x1a\x02\x08\x01";  // one shard, of version 1
const std::string kFour(4, 'n'), kEight(8, 'n');

// Returns the problem of a checkpoint with these entries and a shard of 16 bytes; "" where there is none.
std::string problem_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  try {
    open({{".index", table_of(entries)}, {".data-00000-of-00001", std::string(16, 'n')}});
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

std::string problem_of(const MadeEntry& entry) {
  return problem_of({{"", kHeader}, {"a", encode(entry)}});
}

TEST(TensorFlowBundle, RefusesWhatDoesNotFit) {
  EXPECT_EQ(problem_of({.shape = {1}, .size = 4, .numbers = kFour}), "");
  EXPECT_THAT(problem_of({.shape = {2}, .size = 4, .numbers = kFour}),
              core::Says("does not lie inside", "expected 8 bytes of float32 [2], got 4"));
  EXPECT_THAT(problem_of({.shape = {1}, .size = 8, .numbers = kEight}),
              core::Says("shape and size disagree", "expected 4 bytes of float32 [1], got 8"));
  EXPECT_THAT(problem_of({.shape = {1}, .size = 4, .numbers = kEight}),
              core::Says("checksum of the tensor differs", "expected masked crc32c 0x63609613, got 0x5655cc92"));
  EXPECT_THAT(problem_of({.shape = {1}, .offset = 13, .size = 4}),
              core::Says("ends behind its shard", "expected 16 bytes, got 4 from 13"));
  EXPECT_THAT(problem_of({.shape = {1}, .offset = -4, .size = 4}),
              core::Says("ends behind its shard", "expected 16 bytes, got 4 from -4"));
  EXPECT_THAT(
      problem_of({.shape = {1}, .offset = INT64_MAX, .size = INT64_MAX}),
      core::Says("ends behind its shard", "expected 16 bytes, got 9223372036854775807 from 9223372036854775807"));
  EXPECT_THAT(problem_of({.shape = {1}, .shard = 1, .size = 4}),
              core::Says("in a shard that the checkpoint does not", "expected less than 1, got 1"));
  EXPECT_THAT(problem_of({.shape = {-1}, .size = 4}), core::Says("the shape is unknown or impossible"));
  EXPECT_THAT(problem_of({.shape = {INT64_MAX, INT64_MAX}, .size = 4}),
              core::Says("impossible shape", "got float32 [9223372036854775807, 9223372036854775807]"));
  EXPECT_THAT(problem_of({.shape = {0, INT64_MAX, INT64_MAX}}),
              core::Says("impossible shape", "got float32 [0, 9223372036854775807, 9223372036854775807]"));
  EXPECT_THAT(problem_of({.shape = std::vector<int64_t>(65, 1), .size = 4}), core::Says("the shape is unknown"));
  const MadeEntry four{.shape = {1}, .size = 4, .numbers = kFour};
  EXPECT_THAT(problem_of({{"", kHeader}, {"a", encode(four)}, {"b", encode(four)}}), core::Says("overlaps another"));
  EXPECT_THAT(problem_of({{"a", encode(four)}}), core::Says("no header"));
  EXPECT_THAT(problem_of(std::vector<std::pair<std::string, std::string>>()), core::Says("the index is empty"));
  EXPECT_THAT(problem_of({{"", ""}}), core::Says("number of shards is impossible", "got 0"));
  EXPECT_THAT(problem_of({{"", "\x08\x01\x10\x02"}}), core::Says("order of bytes is unknown", "got 2"));
  EXPECT_THAT(problem_of({{"", "\x08\x01\x1a\x02\x10\x07"}}), core::Says("newer format: memory: got version 7"));
  EXPECT_THAT(problem_of({{"", "\x08"}}), core::Says("header is malformed"));
  EXPECT_THAT(problem_of({{"", kHeader}, {"a", "\x08"}}), core::Says("entry is malformed"));
  EXPECT_THAT(problem_of({{"", kHeader}, {"b", encode(four)}, {"a", encode(four)}}),
              core::Says("out of order", "at offset 0"));
  EXPECT_THAT(problem_of({{"", kHeader}, {std::string(5000, 'a'), encode(four)}}),
              core::Says("too long", "at offset 0"));
  // Types that are not read, or that nobody knows, are named.
  EXPECT_EQ(open({{".index", table_of({{"", kHeader}, {"a", encode({.type = 99})}})}, {".data-00000-of-00001", ""}})
                .unread.at(0)
                .type,
            "type 99");
}

// types.proto of TensorFlow.
TEST(TensorFlowBundle, TypesHaveTheNumbersOfTensorFlow) {
  using enum TensorType;
  const std::pair<const char*, std::optional<TensorType>> types[] = {
      {"invalid", std::nullopt},
      {"float", kFloat32},
      {"double", kFloat64},
      {"int32", kInt32},
      {"uint8", kUint8},
      {"int16", kInt16},
      {"int8", kInt8},
      {"string", std::nullopt},
      {"complex64", std::nullopt},
      {"int64", kInt64},
      {"bool", kBool},
      {"qint8", std::nullopt},
      {"quint8", std::nullopt},
      {"qint32", std::nullopt},
      {"bfloat16", kBfloat16},
      {"qint16", std::nullopt},
      {"quint16", std::nullopt},
      {"uint16", kUint16},
      {"complex128", std::nullopt},
      {"half", kFloat16},
      {"resource", std::nullopt},
      {"variant", std::nullopt},
      {"uint32", kUint32},
      {"uint64", kUint64},
      {"float8_e5m2", std::nullopt},
      {"float8_e4m3fn", std::nullopt},
  };
  int64_t number = 0;
  for (const auto& [name, type] : types) {
    EXPECT_EQ(tensorflow_type_name(number), name);
    EXPECT_EQ(tensor_type_of_tensorflow(number), type) << name;
    ++number;
  }
  for (const int64_t other : {int64_t{-1}, number}) {
    EXPECT_EQ(tensorflow_type_name(other), fmt::format("type {}", other));
    EXPECT_EQ(tensor_type_of_tensorflow(other), std::nullopt);
  }
}

// A version that this reader knows is no newer one.
TEST(TensorFlowBundle, TheVersionOfToday) {
  const std::string entry = encode({.shape = {1}, .size = 4, .numbers = kFour});
  EXPECT_EQ(problem_of({{"", "\x08\x01\x1a\x02\x10\x01"}, {"a", entry}}), "");
  EXPECT_EQ(problem_of({{"", "\x08\x01\x1a\x02\x08\x07"}, {"a", entry}}), "") << "of the writer, for any reader";
  EXPECT_THAT(problem_of({{"", "\x08\x01\x1a\x02\x10\x02"}}), core::Says("newer format: memory: got version 2"));
  EXPECT_THAT(problem_of({{"", "\x08\x01\x10\x03"}}), core::Says("order of bytes is unknown", "got 3"));
}

TEST(TensorFlowBundle, PartsCoverTheirVariableOnce) {
  const auto problem = [](const std::vector<BundleSlice>& slices,
                          std::vector<std::pair<std::string, MadeEntry>> parts) {
    std::vector<std::pair<std::string, std::string>> entries{{"", kHeader}};
    for (const auto& [key, part] : parts) entries.emplace_back(key, encode(part));
    entries.emplace_back("a", encode({.shape = {2}, .slices = slices}));
    return problem_of(entries);
  };
  const BundleSlice first{{0, 1}}, second{{1, 1}}, both{{0, -1}}, behind{{1, 2}};
  const MadeEntry low{.shape = {1}, .size = 4, .numbers = kFour},
      high{.shape = {1}, .offset = 4, .size = 4, .numbers = kFour},
      wide{.shape = {2}, .offset = 4, .size = 8, .numbers = kEight};
  const auto key = [](const BundleSlice& slice) { return bundle_slice_key("a", slice); };
  EXPECT_EQ(problem({first, second}, {{key(first), low}, {key(second), high}}), "");
  EXPECT_EQ(problem({both}, {{key(both), wide}}), "");
  const MadeEntry elsewhere{.shape = {2}, .shard = 9, .offset = -1, .size = 100, .slices = {both}};
  EXPECT_EQ(problem_of({{"", kHeader}, {key(both), encode(wide)}, {"a", encode(elsewhere)}}), "")
      << "the place of the whole, whose parts have theirs, does not count";
  EXPECT_THAT(problem({first}, {{key(first), low}}),
              core::Says("does not lie inside its data", "expected 8 bytes of float32 [2], got 4"));
  EXPECT_THAT(problem({first, both}, {{key(both), wide}, {key(first), low}}),
              core::Says("do not cover it once", "expected float32 [2]"));
  EXPECT_THAT(problem({first, first}, {{key(first), low}}), core::Says("a part of the variable is missing"));
  EXPECT_THAT(problem({first, second}, {{key(first), low}}), core::Says("a part of the variable is missing"));
  EXPECT_THAT(problem({behind}, {{key(behind), wide}}), core::Says("a part lies outside"));
  EXPECT_THAT(problem({both}, {{key(both), low}}), core::Says("has another shape", "expected [2], got float32 [1]"));
  EXPECT_THAT(problem({both}, {{key(both), wide}, {bundle_slice_key("b", first), low}}),
              core::Says("belongs to no partitioned variable"));
  const MadeEntry integers{.type = 3, .shape = {2}, .offset = 4, .size = 8, .numbers = kEight};
  EXPECT_THAT(problem({both}, {{key(both), integers}}), core::Says("is missing, or of another type"));
  // As many elements as the whole has, one of them twice.
  const BundleSlice left{{0, 2}}, middle{{1, 2}};
  const MadeEntry eight{.shape = {2}, .size = 8, .numbers = kEight},
      behind_it{.shape = {2}, .offset = 8, .size = 8, .numbers = kEight};
  EXPECT_THAT(problem_of({{"", kHeader},
                          {key(left), encode(eight)},
                          {key(middle), encode(behind_it)},
                          {"a", encode({.shape = {4}, .slices = {left, middle}})}}),
              core::Says("do not cover it once", "expected float32 [4]"));
}

// The left column and the two right ones of a matrix of two rows.
TEST(TensorFlowBundle, PartsOfSeveralColumnsAreJoinedRowByRow) {
  const BundleSlice left{{0, -1}, {0, 1}}, right{{0, -1}, {1, 2}};
  std::string numbers;
  for (const float number : {10.0F, 20.0F, 11.0F, 12.0F, 21.0F, 22.0F}) append_little_endian(numbers, number);
  const MadeEntry first{.shape = {2, 1}, .size = 8, .numbers = numbers.substr(0, 8)},
      second{.shape = {2, 2}, .offset = 8, .size = 16, .numbers = numbers.substr(8)};
  const TensorFlowCheckpoint checkpoint =
      open({{".index", table_of({{"", kHeader},
                                 {bundle_slice_key("a", left), encode(first)},
                                 {bundle_slice_key("a", right), encode(second)},
                                 {"a", encode({.shape = {2, 3}, .slices = {left, right}})}})},
            {".data-00000-of-00001", numbers}});
  ASSERT_EQ(checkpoint.tensors.tensors().size(), 1U);
  EXPECT_EQ(checkpoint.tensors.read_floats(checkpoint.tensors.tensors()[0]),
            (std::vector<float>{10, 11, 12, 20, 21, 22}));
}

// A checksum is computed of a mebibyte at a time.
TEST(TensorFlowBundle, ChecksAllOfALongTensor) {
  std::string numbers(16 + (size_t{1} << 20) + 4, 'n');
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<char>(i % 251);
  const MadeEntry entry{.shape = {(1 << 18) + 1}, .offset = 16, .size = (1 << 20) + 4, .numbers = numbers.substr(16)};
  const std::string index = table_of({{"", kHeader}, {"a", encode(entry)}});
  const auto problem = [&] {
    return core::message_of(
        [&] {
          open({{".index", index}, {".data-00000-of-00001", numbers}});
        },
        core::ErrorCode::kCorruptData);
  };
  EXPECT_EQ(problem(), "no error");
  for (const size_t at : {size_t{16}, (size_t{1} << 20) + 16, numbers.size() - 1}) {
    numbers[at] = static_cast<char>(numbers[at] ^ 1);
    EXPECT_THAT(problem(), ::testing::HasSubstr("checksum of the tensor differs")) << at;
    numbers[at] = static_cast<char>(numbers[at] ^ 1);
  }
}

TEST(TensorFlowBundle, TheGlobalStepIsOneInteger) {
  const auto step_of = [](const MadeEntry& entry) {
    return open({{".index", table_of({{"", kHeader}, {"global_step", encode(entry)}})},
                 {".data-00000-of-00001", entry.numbers}})
        .global_step;
  };
  const std::string seven = "\7\1\0\0"s, wide = "\7\1\0\0\1\0\0\0"s;
  EXPECT_EQ(step_of({.type = 3, .size = 4, .numbers = seven}), 263);
  EXPECT_EQ(step_of({.type = 3, .shape = {1}, .size = 4, .numbers = seven}), 263);
  EXPECT_EQ(step_of({.type = 9, .size = 8, .numbers = wide}), 4294967559);
  EXPECT_EQ(step_of({.type = 3, .shape = {2}, .size = 8, .numbers = wide}), std::nullopt);
  EXPECT_EQ(step_of({.type = 1, .size = 4, .numbers = seven}), std::nullopt);
}

TEST(TensorFlowBundle, AMissingShardIsNamed) {
  const core::TempDir temp;
  const std::string prefix = temp.file("model.ckpt-5");
  core::local_file_system().write_file_atomically(prefix + ".index", testdata("tensorflow/types.index"));
  EXPECT_EQ(
      core::message_of([&] { static_cast<void>(open_tensorflow_checkpoint(prefix)); }, core::ErrorCode::kNotFound),
      "a file of the checkpoint is missing: " + prefix + ".data-00000-of-00001; copy all files of the checkpoint");
}

// As OrderedCode of TensorFlow writes numbers: core/lib/strings/ordered_code_test.cc has these.
TEST(TensorFlowBundle, KeysOfPartsAreInOrderedCode) {
  const auto number = [](int64_t value) {
    const std::string key = bundle_slice_key("", {{value, 0}});
    return key.substr(5, key.size() - 6);  // behind 0, the empty text and 1 dimension; before the length
  };
  EXPECT_EQ(number(0), "\x80");
  EXPECT_EQ(number(-1), "\x7f");
  EXPECT_EQ(number(63), "\xbf");
  EXPECT_EQ(number(-64), "\x40");
  EXPECT_EQ(number(64), "\xc0\x40");
  EXPECT_EQ(number(-65), "\x3f\xbf");
  EXPECT_EQ(number(8191), "\xdf\xff");
  EXPECT_EQ(number(8192), "\xe0\x20\0"s);
  EXPECT_EQ(number(INT64_MAX), "\xff\xc0\x7f\xff\xff\xff\xff\xff\xff\xff"s);
  EXPECT_EQ(bundle_slice_key("a\0\xff"s, {}), "\0a\0\xff\xff\0\0\1\0"s);
}

TEST(Sstable, RefusesBlocksThatLie) {
  const auto problem = [](const std::string& table) -> std::string {
    try {
      read_sstable(MemoryFile(table), [](std::string_view, std::string_view) {});
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string good = table_of({{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(problem(good), "");
  EXPECT_THAT(problem(""), core::Says("too short for a table", "at offset 0"));
  EXPECT_THAT(problem(good + "x"), core::Says("this is no table of TensorFlow",
                                              "at offset 43: expected 0xdb4775248b80fb57, got 0x78db4775248b80fb"));
  EXPECT_THAT(problem(table_of_block(block_of({{"a", "1"}}), 2)),
              core::Says("unknown compression", "at offset 0: expected none (0) or Snappy (1), got 2"));
  EXPECT_THAT(problem(table_of_block(block_of({{"a", "1"}}), 1)),
              core::Says("compressed bytes are malformed", "at offset 0"));
  EXPECT_THAT(problem(table_of_block("abc")), core::Says("a block of the table is too short", "at offset 0"));
  EXPECT_THAT(problem(table_of_block("\xff\xff\xff\xff")), core::Says("impossibly many restart points", "at offset 0"));
  EXPECT_THAT(problem(table_of_block("\1\1\0a\0\0\0\0"s)), core::Says("an entry of the table is cut", "at offset 0"));
  EXPECT_THAT(problem(table_of_block("\0\1\7a\0\0\0\0"s)), core::Says("an entry of the table is cut", "at offset 0"));
  // A block that is named twice.
  const std::string block = with_trailer(block_of({{"a", "1"}}));
  const std::string place = varint_of(0) + varint_of(block.size() - 5);
  const std::string index = block_of({{"a", place}, {"b", place}});
  std::string footer = varint_of(0) + varint_of(0) + varint_of(block.size()) + varint_of(index.size());
  footer.resize(40);
  append_little_endian<uint64_t>(footer, 0xdb4775248b80fb57U);
  EXPECT_THAT(problem(block + with_trailer(index) + footer), core::Says("blocks of the table overlap", "at offset 0"));
}

// In each message, in front of what is known.
TEST(TensorFlowBundle, PassesOverFieldsThatItDoesNotKnow) {
  using protozero::pbf_writer;
  const auto add_unknown = [](pbf_writer& message) {
    message.add_string(100, "later");
    message.add_int64(101, 5);
  };
  std::string header, entry;
  {
    pbf_writer message(header);
    add_unknown(message);
    message.add_int32(1, 3);
    message.add_enum(2, 1);
    pbf_writer version(message, 3);
    add_unknown(version);
    version.add_int32(2, 1);
  }
  {
    pbf_writer message(entry);
    add_unknown(message);
    message.add_enum(1, 3);
    {
      pbf_writer shape(message, 2);
      add_unknown(shape);
      shape.add_bool(3, false);
      for (const int64_t size : {5, 6}) {
        pbf_writer dimension(shape, 2);
        add_unknown(dimension);
        dimension.add_int64(1, size);
      }
    }
    message.add_int32(3, 1);
    message.add_int64(4, 8);
    message.add_int64(5, 120);
    message.add_fixed32(6, 0x12345678);
    pbf_writer slice(message, 7);
    add_unknown(slice);
    pbf_writer extent(slice, 1);
    add_unknown(extent);
    extent.add_int64(1, 2);
    extent.add_int64(2, 3);
  }
  core::Result<BundleHeader> parsed_header = parse_bundle_header(header);
  ASSERT_TRUE(parsed_header.ok());
  EXPECT_EQ(parsed_header.value().shards, 3);
  EXPECT_TRUE(parsed_header.value().big_endian);
  core::Result<BundleEntry> parsed_entry = parse_bundle_entry(entry);
  ASSERT_TRUE(parsed_entry.ok());
  const BundleEntry& parsed = parsed_entry.value();
  EXPECT_EQ(parsed.type, 3);
  EXPECT_EQ(parsed.shape, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(parsed.shard, 1);
  EXPECT_EQ(parsed.offset, 8);
  EXPECT_EQ(parsed.size, 120);
  EXPECT_EQ(parsed.checksum, 0x12345678U);
  ASSERT_EQ(parsed.slices.size(), 1U);
  ASSERT_EQ(parsed.slices[0].size(), 1U);
  EXPECT_EQ(parsed.slices[0][0].start, 2);
  EXPECT_EQ(parsed.slices[0][0].length, 3);
}

TEST(TensorFlowBundle, ShapesAndPartsHaveAtMost64Dimensions) {
  const auto problem = [](const MadeEntry& made) {
    const core::Result<BundleEntry> entry = parse_bundle_entry(encode(made));
    return entry.ok() ? std::string() : entry.error().detail().problem;
  };
  EXPECT_EQ(problem({.shape = std::vector<int64_t>(64, 1)}), "");
  EXPECT_EQ(problem({.shape = std::vector<int64_t>(65, 1)}), "the shape is unknown or impossible");
  EXPECT_EQ(problem({.slices = {BundleSlice(64)}}), "");
  EXPECT_EQ(problem({.slices = {BundleSlice(65)}}), "a part has impossibly many dimensions");
  const core::Result<BundleEntry> unknown = parse_bundle_entry("\x12\x02\x18\x01");  // shape { unknown_rank: true }
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().detail().problem, "the shape is unknown or impossible");
}

TEST(TensorFlowBundle, SaysWhichTensorIsWrong) {
  using ::testing::StartsWith;
  const std::string of_a = ": memory, tensor 'a'";
  const MadeEntry four{.shape = {1}, .size = 4, .numbers = kFour};
  EXPECT_THAT(problem_of({.shape = {1}, .shard = 1, .size = 4}),
              StartsWith("tensor is in a shard that the checkpoint does not have" + of_a + ": expected"));
  EXPECT_THAT(problem_of({.shape = {1}, .offset = 13, .size = 4}),
              StartsWith("tensor ends behind its shard" + of_a + ": expected"));
  EXPECT_THAT(problem_of({.shape = {2}, .size = 4, .numbers = kFour}),
              StartsWith("tensor does not lie inside its data" + of_a + ": expected"));
  EXPECT_THAT(problem_of({.shape = {1}, .size = 8, .numbers = kEight}),
              StartsWith("tensor's shape and size disagree" + of_a + ": expected"));
  EXPECT_THAT(problem_of({.shape = {1}, .size = 4, .numbers = kEight}),
              StartsWith("checksum of the tensor differs" + of_a + ": expected"));
  EXPECT_THAT(problem_of({{"", kHeader}, {"a", "\x08"}}), StartsWith("the entry is malformed" + of_a + ": got"));
  EXPECT_THAT(problem_of({{"", kHeader}, {"a", encode(four)}, {"b", encode(four)}}),
              StartsWith("tensor overlaps another: memory, tensor 'b'; copy the checkpoint again"));
  EXPECT_THAT(problem_of({{"", "\x08"}}), StartsWith("the header is malformed: memory: got"));
  EXPECT_THAT(problem_of({{"a", encode(four)}}), StartsWith("the index has no header: memory; copy"));

  const BundleSlice first{{0, 1}}, both{{0, -1}}, behind{{1, 2}};
  const MadeEntry two{.shape = {2}, .size = 8, .numbers = kEight};
  const auto of_parts = [&](const BundleSlice& slice, const std::string& key, const MadeEntry& part) {
    return problem_of({{"", kHeader}, {key, encode(part)}, {"a", encode({.shape = {2}, .slices = {slice}})}});
  };
  EXPECT_THAT(of_parts(first, bundle_slice_key("a", both), two),
              StartsWith("a part of the variable is missing, or of another type" + of_a + "; copy"));
  EXPECT_THAT(of_parts(behind, bundle_slice_key("a", behind), two),
              StartsWith("a part lies outside of its variable" + of_a + "; copy"));
  EXPECT_THAT(of_parts(both, bundle_slice_key("a", both), four),
              StartsWith("a part of the variable has another shape" + of_a + ": expected"));
  EXPECT_EQ(of_parts(both, bundle_slice_key("a", both), two), "");
  EXPECT_THAT(problem_of({{"", kHeader}, {bundle_slice_key("b", first), encode(four)}}),
              StartsWith("a part belongs to no partitioned variable: memory, tensor 'b"));
}

// Each name shares all but its end with the one in front of it, so that a small file tells very many bytes of them.
TEST(TensorFlowBundle, NamesAreAtMostAHundredTimesAsLongAsTheIndex) {
  const auto problem = [](size_t names) {
    constexpr size_t kShared = 4000;
    std::string block = varint_of(0) + varint_of(0) + varint_of(kHeader.size()) + kHeader;
    block += varint_of(0) + varint_of(kShared) + varint_of(0) + std::string(kShared, 'a');
    for (size_t i = 0; i < names; ++i) {
      block += varint_of(kShared) + varint_of(2) + varint_of(0);
      block.push_back(static_cast<char>('b' + i / 16));
      block.push_back(static_cast<char>('b' + i % 16));
    }
    append_little_endian<uint32_t>(block, 0);  // a restart point
    append_little_endian<uint32_t>(block, 1);
    const Files files{{".index", table_of_block(block)}, {".data-00000-of-00001", ""}};
    return core::message_of([&] { open(files); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_EQ(problem(60), "no error");
  EXPECT_THAT(problem(250), ::testing::StartsWith("the names are impossibly long: memory; copy"));
}

TEST(Sstable, BlocksLieInFrontOfTheFooter) {
  // What is said of a table whose index names a block of `size` bytes at `offset`. The table has one, of 13 bytes, and
  // the index behind it, which ends at 37.
  const auto problem = [](uint64_t offset, uint64_t size) {
    std::string table = with_trailer(block_of({{"a", "1"}}));
    const std::string index = block_of({{"b", varint_of(offset) + varint_of(size)}});
    std::string footer = varint_of(0) + varint_of(0) + varint_of(table.size()) + varint_of(index.size());
    footer.resize(40);
    append_little_endian<uint64_t>(footer, 0xdb4775248b80fb57U);
    table += with_trailer(index) + footer;
    EXPECT_EQ(table.size(), 37U + 48U);
    return core::message_of([&] { read_sstable(MemoryFile(table), [](std::string_view, std::string_view) {}); },
                            core::ErrorCode::kCorruptData);
  };
  const std::string remedy = "; copy the file again, or take another checkpoint";
  const auto outside = [&](int offset, const std::string& sizes) {
    return fmt::format("a block of the table lies outside of it: memory at offset {}: {}{}", offset, sizes, remedy);
  };
  EXPECT_EQ(problem(0, 13), "no error");
  EXPECT_THAT(problem(0, 32),
              ::testing::StartsWith("checksum of a block of the table differs: memory at offset 0: expected masked"));
  EXPECT_EQ(problem(0, 33), outside(0, "expected 37 bytes at most, got 33 and 5"));
  EXPECT_THAT(problem(32, 0), ::testing::StartsWith("checksum of a block of the table differs: memory at offset 32: "));
  EXPECT_EQ(problem(33, 0), outside(33, "expected 4 bytes at most, got 0 and 5"));
  EXPECT_EQ(problem(38, 0), outside(38, "expected 0 bytes at most, got 0 and 5"));
}

TEST(Sstable, KeysAreInOrderFromBlockToBlock) {
  // What is said of a table of two blocks with one key each.
  const auto problem = [](const std::string& first_key, const std::string& second_key) {
    const std::string first = block_of({{first_key, "1"}}), second = block_of({{second_key, "2"}});
    std::string table = with_trailer(first);
    const std::string index = block_of(
        {{"x", varint_of(0) + varint_of(first.size())}, {"y", varint_of(table.size()) + varint_of(second.size())}});
    table += with_trailer(second);
    std::string footer = varint_of(0) + varint_of(0) + varint_of(table.size()) + varint_of(index.size());
    footer.resize(40);
    append_little_endian<uint64_t>(footer, 0xdb4775248b80fb57U);
    table += with_trailer(index) + footer;
    return core::message_of([&] { read_sstable(MemoryFile(table), [](std::string_view, std::string_view) {}); },
                            core::ErrorCode::kCorruptData);
  };
  EXPECT_EQ(problem("b", "c"), "no error");
  EXPECT_EQ(problem("", "a"), "no error") << "the empty key, which has none in front";
  for (const std::string second : {"a", "b"}) {
    EXPECT_EQ(problem("b", second),
              "the keys of the table are out of order: memory at offset 18; copy the file again, or take another "
              "checkpoint")
        << second;
  }
}

TEST(Sstable, SaysWhereItIsMalformed) {
  const auto problem = [](const std::string& table) {
    return core::message_of([&] { read_sstable(MemoryFile(table), [](std::string_view, std::string_view) {}); },
                            core::ErrorCode::kCorruptData);
  };
  const std::string remedy = "; copy the file again, or take another checkpoint";
  std::string footer(40, '\xff');
  append_little_endian<uint64_t>(footer, 0xdb4775248b80fb57U);
  EXPECT_EQ(problem("front" + footer), "the table's footer is malformed: memory at offset 5" + remedy);
  const std::string block = with_trailer(block_of({{"a", "1"}})), index = block_of({{"b", ""}});
  footer = varint_of(0) + varint_of(0) + varint_of(block.size()) + varint_of(index.size());
  footer.resize(40);
  append_little_endian<uint64_t>(footer, 0xdb4775248b80fb57U);
  EXPECT_EQ(problem(block + with_trailer(index) + footer),
            fmt::format("an entry of the table's index is malformed: memory at offset {}{}", block.size(), remedy));
  EXPECT_EQ(problem(table_of({{std::string(4096, 'k'), "1"}})), "no error");
  EXPECT_EQ(problem(table_of({{std::string(4097, 'k'), "1"}})),
            "a key of the table is too long: memory at offset 0" + remedy);
}

// A shard of 16 bytes.
TEST(TensorFlowBundle, NothingIsReadBehindItsFiles) {
  const MadeEntry entry{.shape = {1}, .size = 4, .numbers = kFour};
  const TensorFlowCheckpoint checkpoint = open({{".index", table_of({{"", kHeader}, {"a", encode(entry)}})},
                                                {".data-00000-of-00001", std::string(12, 'n') + "last"}});
  const auto read_at = [&](uint64_t offset, TensorType type = TensorType::kFloat32) {
    StoredTensor tensor = checkpoint.tensors.tensors().at(0);
    tensor.type = type;
    tensor.offset = offset;
    std::string bytes;
    const std::string problem =
        core::message_of([&] { bytes = checkpoint.tensors.read_bytes(tensor); }, core::ErrorCode::kCorruptData);
    return problem == "no error" ? bytes : problem;
  };
  EXPECT_EQ(read_at(0), kFour);
  EXPECT_EQ(read_at(12), "last");
  for (const uint64_t offset : {uint64_t{13}, uint64_t{16}, uint64_t{17}, ~uint64_t{0}}) {
    EXPECT_EQ(read_at(offset), "file ends too early: memory") << offset;
  }
  EXPECT_EQ(read_at(15, TensorType::kUint8), "t");
  for (const uint64_t offset : {uint64_t{16}, uint64_t{17}, ~uint64_t{0}}) {
    EXPECT_EQ(read_at(offset, TensorType::kUint8), "file ends too early: memory") << offset;
  }
}

TEST(Sstable, HasAFooterAndNoMoreRestartPointsThanItsBlocksHold) {
  const auto problem = [](const std::string& table) {
    return core::message_of([&] { read_sstable(MemoryFile(table), [](std::string_view, std::string_view) {}); },
                            core::ErrorCode::kCorruptData);
  };
  const std::string remedy = "; copy the file again, or take another checkpoint";
  EXPECT_EQ(problem(std::string(47, 'x')), "file is too short for a table: memory at offset 0" + remedy);
  EXPECT_EQ(problem(std::string(48, 'x')),
            "this is no table of TensorFlow, or it is cut: memory at offset 0: expected 0xdb4775248b80fb57, got "
            "0x7878787878787878" +
                remedy);
  const std::string many = "a block of the table has impossibly many restart points: memory at offset 0" + remedy;
  EXPECT_EQ(problem(table_of_block("\0\0\0\0"s)), "no error");
  EXPECT_EQ(problem(table_of_block("\1\0\0\0"s)), many);
  EXPECT_EQ(problem(table_of_block("\0\0\0\0\1\0\0\0"s)), "no error");
  EXPECT_EQ(problem(table_of_block("\0\0\0\0\2\0\0\0"s)), many);
  EXPECT_EQ(problem(table_of_block("\0\0\0"s)), "a block of the table is too short: memory at offset 0" + remedy);
}

}  // namespace
}  // namespace trainyard::formats::tensorflow_bundle_test
