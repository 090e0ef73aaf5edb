#include "trainyard/formats/tensors/npy.h"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats::npy_test {
namespace {

using std::string_literals::operator""s;

NpyArray read_content(std::string_view content) {
  return read_npy(MemoryFile(content));
}

NpyArray read_testdata(const std::string& name) {
  return read_content(testdata(name));
}

template <typename T>
std::vector<T> values_of(const NpyArray& array) {
  const std::span<const T> values = array.values<T>();
  return {values.begin(), values.end()};
}

// A file of version 1.0 with the given header text and data.
std::string file_of(std::string_view header, std::string_view data) {
  std::string content = "\x93NUMPY\x01\x00"s;
  content += static_cast<char>(header.size() % 256);
  content += static_cast<char>(header.size() / 256);
  return content.append(header).append(data);
}

// The error of reading `content`.
core::Error error_of(std::string_view content) {
  try {
    read_content(content);
  } catch (const core::Error& error) {
    return error;
  }
  ADD_FAILURE() << "read it";
  return {core::ErrorCode::kInternal, "none"};
}

TEST(Npy, ReadsFilesOfNumPy) {
  const NpyArray matrix = read_testdata("float32_2x3.npy");
  EXPECT_EQ(matrix.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(values_of<float>(matrix), (std::vector<float>{0, 0.25F, 0.5F, 0.75F, 1, 1.25F}));

  const NpyArray scalar = read_testdata("float64_scalar.npy");
  EXPECT_TRUE(scalar.shape.empty());
  EXPECT_EQ(values_of<double>(scalar), std::vector<double>{2.5});

  EXPECT_EQ(values_of<int64_t>(read_testdata("int64_3.npy")), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(values_of<float>(read_testdata("version_2_float32_2.npy")), (std::vector<float>{1, 2}));

  const NpyArray empty = read_testdata("uint8_empty_0x4.npy");
  EXPECT_EQ(empty.type, NpyType::kUint8);
  EXPECT_EQ(empty.shape, (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(empty.bytes.empty());
}

TEST(Npy, WritesTheBytesOfNumPy) {
  const std::vector<float> matrix = {0, 0.25F, 0.5F, 0.75F, 1, 1.25F};
  EXPECT_EQ(encode_npy<float>(std::vector<int64_t>{2, 3}, matrix), testdata("float32_2x3.npy"));
  EXPECT_EQ(encode_npy<double>({}, std::vector<double>{2.5}), testdata("float64_scalar.npy"));
  EXPECT_EQ(encode_npy<int64_t>(std::vector<int64_t>{3}, std::vector<int64_t>{1, -2, 3}), testdata("int64_3.npy"));
  EXPECT_EQ(encode_npy<uint8_t>(std::vector<int64_t>{0, 4}, {}), testdata("uint8_empty_0x4.npy"));
}

TEST(Npy, ReadsWhatItWroteAtAnyHeaderLength) {
  for (int64_t size = 1; size < 200'000; size *= 3) {
    const std::vector<uint8_t> values(size, 7);
    const std::string content = encode_npy<uint8_t>(std::vector<int64_t>{1, size, 1}, values);
    EXPECT_EQ((content.size() - size) % 64, 0U);
    EXPECT_EQ(values_of<uint8_t>(read_content(content)), values);
  }
}

TEST(Npy, ShapeAndValuesMustAgree) {
  const std::vector<float> values(6);
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{5}, {}, {-2, -3}, {int64_t{1} << 62, 8}}) {
    EXPECT_THROW(encode_npy<float>(shape, values), core::Error);
  }
}

TEST(Npy, AnotherTypeIsRefused) {
  const NpyArray array = read_testdata("int64_3.npy");
  try {
    array.values<float>();
    FAIL() << "gave integers for floats";
  } catch (const core::Error& error) {
    EXPECT_STREQ(error.what(),
                 "array is of another type: expected float32, got int64; convert it, as with x.astype('float32')");
  }
}

TEST(Npy, WhatIsKnownButNotReadIsUnsupported) {
  EXPECT_EQ(error_of(testdata("fortran_2x3.npy")).code(), core::ErrorCode::kUnsupported);
  EXPECT_EQ(error_of(testdata("big_endian_2.npy")).code(), core::ErrorCode::kUnsupported);
  EXPECT_EQ(error_of(file_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "12345678")).code(),
            core::ErrorCode::kUnsupported);
  EXPECT_EQ(error_of("\x93NUMPY\x03\x00\x02\x00\x00\x00{}"s).code(), core::ErrorCode::kUnsupported);
}

// With a single size above 1 both orders are the same.
TEST(Npy, FortranOrderOfOneDimensionIsRead) {
  for (const std::string shape : {"(2,)", "(1, 2)", "(2, 1, 1)"}) {
    const std::string header = "{'descr': '|u1', 'fortran_order': True, 'shape': " + shape + "}";
    EXPECT_EQ(values_of<uint8_t>(read_content(file_of(header, "ab"))), (std::vector<uint8_t>{'a', 'b'})) << shape;
  }
  EXPECT_EQ(error_of(file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2)}", "abcd")).detail().problem,
            "array is in Fortran order");
}

TEST(Npy, SaysWhereAFileIsWrongAndByHowMuch) {
  const auto message = [](const std::string& content) {
    return core::message_of([&] { read_content(content); }, core::ErrorCode::kCorruptData);
  };
  const std::string good = testdata("float32_2x3.npy");
  ASSERT_EQ(good.size(), 152U);
  EXPECT_THAT(message(good + "x"), core::Says("at offset 128: expected 24 bytes for float32 of shape [2, 3], got 25"));
  EXPECT_THAT(message(file_of("{}", "").replace(8, 1, "\x10")),
              core::Says("too long: memory at offset 8: expected at most 2 bytes, got 16"));
  // Version 2 has four bytes of length.
  for (const size_t size : {size_t{10}, size_t{11}}) {
    EXPECT_THAT(message("\x93NUMPY\x02" + std::string(size - 7, '\0')),
                core::Says(fmt::format("length of its header: memory at offset 8: expected 12 bytes, got {}", size)));
  }
  EXPECT_THAT(message(file_of("{'descr': 1", "")), core::Says("memory at offset 20: expected ''', got \"1\""));
  EXPECT_THAT(message(file_of("{'descr': '<f4' 'shape'", "")),
              core::Says("malformed: memory at offset 26: expected '}', got \"'shape'\""));
  std::string ones = "1";
  for (int i = 1; i < 32; ++i) ones += ", 1";
  const std::string begin = "{'descr': '|u1', 'fortran_order': False, 'shape': (";
  EXPECT_EQ(read_content(file_of(begin + ones + ")}", "a")).shape, std::vector<int64_t>(32, 1));
  EXPECT_THAT(message(file_of(begin + ones + ", 1)}", "a")),
              core::Says(fmt::format("at offset {}: expected at most 32 dimensions, got \"1)}}\"",
                                     10 + begin.size() + ones.size() + 2)));
}

TEST(Npy, HostileShapesAreRefusedBeforeAllocation) {
  for (const std::string shape :
       {"(1152921504606846976,)", "(4611686018427387905,)" /* 4 bytes, modulo 2^64 */,
        "(4294967296, 4294967296, 4294967296)", "(-1,)", "(99999999999999999999,)", "(1000000000,)", "(2, 2)"}) {
    const std::string content = file_of("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n", "1234");
    const MemoryFile file(content);
    EXPECT_THROW(read_npy(file), core::Error) << shape;
    EXPECT_LE(file.longest_read(), 200U) << shape;
  }
  // A header of 4 GiB.
  const MemoryFile file("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"s);
  EXPECT_THROW(read_npy(file), core::Error);
  EXPECT_LE(file.longest_read(), 12U);
}

TEST(Npy, ADataPartOfAnotherLengthIsCorruptData) {
  const std::string good = testdata("float32_2x3.npy");
  for (const std::string& content : {good + "x", good.substr(0, good.size() - 1)}) {
    const core::Error error = error_of(content);
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
    EXPECT_EQ(error.detail().problem, "size of the file is not that of its array");
  }
}

TEST(Npy, MalformedHeadersAreCorruptData) {
  for (const std::string header :
       {"", "{}", "{'descr': '<f4', 'fortran_order': False}", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", "{'descr': <f4, 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "{'other': '<f4'}", "{'descr"}) {
    const core::Error error = error_of(file_of(header, "1234"));
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData) << header;
    EXPECT_NE(error.detail().where.find("memory at offset "), std::string::npos);
  }
}

TEST(Npy, DamagedFilesGiveArraysOrErrors) {
  const std::string good = testdata("float32_2x3.npy");
  for_each_truncation(good,
                      [](std::string_view part) { EXPECT_THROW(read_content(part), core::Error) << part.size(); });
  for_each_mutation(good, 5000, [](const std::string& damaged) {
    try {
      read_content(damaged);
    } catch (const core::Error&) {
    }
  });
}

TEST(Npy, SaysWhatItDoesNotReadAndWhatItReads) {
  const std::string again = "; write the file again with numpy.save";
  std::string content = file_of("{}", "");
  for (const auto& [at, number, version] : {std::tuple(6, 3, "3.0"), {6, 0, "0.0"}, {7, 1, "1.1"}}) {
    std::string other = content;
    other[static_cast<size_t>(at)] = static_cast<char>(number);
    EXPECT_EQ(
        core::message_of([&] { read_content(other); }, core::ErrorCode::kUnsupported),
        fmt::format("version of the NumPy file is not read: memory: expected 1.0 or 2.0, got {}{}", version, again));
  }
  const std::string objects = file_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "12345678");
  EXPECT_EQ(core::message_of([&] { read_content(objects); }, core::ErrorCode::kUnsupported),
            "array is of a type that is not read: memory: expected little-endian uint8, int64, float32 or float64, got "
            "'|O'; convert it, as with x.astype('float32')");
  EXPECT_EQ(core::message_of([] { read_testdata("fortran_2x3.npy"); }, core::ErrorCode::kUnsupported),
            "array is in Fortran order: memory; save numpy.ascontiguousarray(x)");
  const std::string none = "file is no NumPy array: memory at offset 0: expected \"\\x93NUMPY\" and a version" + again;
  const auto corrupt = [](const std::string& bytes) {
    return core::message_of([&] { read_content(bytes); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_EQ(corrupt("PK"), none);
  EXPECT_EQ(corrupt(content.substr(0, 9)), none);
  EXPECT_EQ(corrupt("\x93NUMPY\x01\0\0\0"s),
            "header of the array is malformed: memory at offset 10: expected '{', got its end" + again);
  EXPECT_EQ(core::message_of([] { encode_npy<float>(std::vector<int64_t>{5}, std::vector<float>(6)); }),
            "shape is not that of the values: expected 6 values, got shape [5]");
}

TEST(Npy, HeadersHaveAtMost64KiB) {
  // Of version 2.0, whose length has four bytes.
  const auto problem = [](uint32_t bytes) {
    std::string content = "\x93NUMPY\x02\0"s;
    for (int shift = 0; shift < 32; shift += 8) content += static_cast<char>(bytes >> shift & 0xff);
    content.append(70'000, ' ');
    return core::message_of([&] { read_content(content); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_THAT(problem(65536), core::Says("malformed: memory at offset 65548: expected '{', got its end"));
  EXPECT_THAT(problem(65537), core::Says("too long: memory at offset 8: expected at most 65536 bytes, got 65537"));
}

TEST(Npy, SaysWhatAHeaderLacksAndWhere) {
  const std::string whole = "{'descr': '|u1', 'fortran_order': False, 'shape': ()} x", part = "{'descr': '|u1'}";
  const struct {
    std::string header;
    size_t place;
    std::string expected, got;
  } cases[] = {{"{'other': (1,)}", 9, "a key of descr, fortran_order and shape", "\" (1,)}\""},
               {"{'descr", 2, "a string's end", "\"descr\""},
               {"{'descr' 1", 9, "':'", "\"1\""},
               {"{'fortran_order': yes}", 18, "True or False", "\"yes}\""},
               {"{'shape': 1}", 10, "'('", "\"1}\""},
               {"{'shape': (x,)}", 11, "a size that is not negative", "\"x,)}\""},
               {"{'shape': (-1,)}", 11, "a size that is not negative", "\"-1,)}\""},
               {"{'shape': (1 2)}", 13, "')'", "\"2)}\""},
               {"{'shape': (1", 12, "')'", "its end"},
               {"{'a\tb': 1" + std::string(20, 'x'), 7, "a key of descr, fortran_order and shape",
                "\" 1" + std::string(18, 'x') + "\""},
               {"\t{}", 0, "'{'", "\"?{}\""},
               {"\xff~ \x7f", 0, "'{'", "\"?~ ?\""},
               {whole, whole.size() - 1, "the end of the header", "\"x\""},
               {part, part.size(), "descr, fortran_order and shape", "its end"}};
  for (const auto& each : cases) {
    EXPECT_EQ(core::message_of([&] { read_content(file_of(each.header, "")); }, core::ErrorCode::kCorruptData),
              fmt::format("header of the array is malformed: memory at offset {}: expected {}, got {}; write the file "
                          "again with numpy.save",
                          10 + each.place, each.expected, each.got));
  }
}

TEST(Npy, TypesHaveTheNamesAndCodesOfNumPy) {
  std::string text;
  for (const NpyType type : {NpyType::kUint8, NpyType::kInt64, NpyType::kFloat32, NpyType::kFloat64}) {
    text += fmt::format("{} {} {}\n", npy_type_name(type), npy_type_code(type), npy_type_bytes(type));
  }
  EXPECT_EQ(text, "uint8 |u1 1\nint64 <i8 8\nfloat32 <f4 4\nfloat64 <f8 8\n");
}

}  // namespace
}  // namespace trainyard::formats::npy_test
