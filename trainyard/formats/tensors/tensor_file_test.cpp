#include "trainyard/formats/tensors/tensor_file.h"

#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/tensors/safetensors_header.h"
#include "trainyard/formats/tensors/torch_state_dict.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"
#include "trainyard/formats/testing/torch_archive.h"

namespace trainyard::formats::tensor_file_test {
namespace {

std::string path_of(const std::string& name) {
  return core::join_path(TRAINYARD_SOURCE_DIR "/trainyard/formats/testdata", name);
}

std::vector<float> floats(const TensorFile& file, std::string_view name) {
  const StoredTensor* const tensor = file.find(name);
  if (tensor == nullptr) return {-999};
  return file.read_floats(*tensor);
}

// As make_tensor_files.py: 24 numbers that every type of 16 bits holds exactly.
std::vector<float> ramp(size_t count = 24, size_t first = 0, size_t step = 1) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(first + i * step) / 8 - 1;
  return values;
}

void expect_the_tensors(const TensorFile& file) {
  for (const char* name : {"float32", "float64", "float16", "bfloat16"}) {
    EXPECT_EQ(floats(file, name), ramp()) << name;
    ASSERT_NE(file.find(name), nullptr);
    EXPECT_EQ(file.find(name)->shape, (std::vector<int64_t>{2, 3, 4}));
    EXPECT_EQ(describe(*file.find(name)), std::string(name) + " [2, 3, 4]");
  }
  for (const char* name : {"int64", "int32", "int16", "int8"}) {
    EXPECT_EQ(floats(file, name), (std::vector<float>{-3, -2, -1, 0, 1, 2})) << name;
  }
  EXPECT_EQ(floats(file, "uint8"), (std::vector<float>{250, 251, 252, 253, 254, 255}));
  EXPECT_EQ(floats(file, "bool"), (std::vector<float>{1, 0}));
  EXPECT_EQ(floats(file, "scalar"), std::vector<float>{7.5});
  EXPECT_TRUE(floats(file, "empty").empty());
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST(TensorFile, ReadsSafetensors) {
  const TensorFile file = open_tensor_file(path_of("tensors.safetensors"));
  EXPECT_EQ(file.tensors().size(), 12U);
  expect_the_tensors(file);
}

// They are intact: "write the file again" would not help.
TEST(TensorFile, NamesTheFormatsThatAreNotRead) {
  const core::TempDir temp;
  const auto message = [&](const std::string& name, const std::string& content) {
    core::local_file_system().write_file_atomically(temp.file(name), content);
    return core::message_of([&] { static_cast<void>(open_tensor_file(temp.file(name))); },
                            core::ErrorCode::kUnsupported);
  };
  EXPECT_THAT(message("any.name", std::string("\x89HDF\r\n\x1a\n") + std::string(100, '\0')),
              ::testing::AllOf(::testing::HasSubstr("any.name"), ::testing::HasSubstr("got HDF5")));
  EXPECT_THAT(message("m.onnx", "\x08\x0a\x12\x09trainyard and the rest"), ::testing::HasSubstr("got ONNX"));
  const std::string pickle = std::string("\x80\2}q\0(X\x0c\0\0\0", 11) + "conv2d_0.w_0";
  EXPECT_THAT(message("m.pdparams", pickle), ::testing::HasSubstr("plain pickles, such as Paddle's .pdparams"));
}

TEST(TensorFile, ReadsWhatTorchSaves) {
  const TensorFile file = open_tensor_file(path_of("tensors.pth"));
  EXPECT_EQ(file.tensors().size(), 14U);
  expect_the_tensors(file);
  std::vector<float> transposed;  // [4, 2, 3] of [2, 3, 4]
  for (size_t k = 0; k < 4; ++k) {
    for (size_t i = 0; i < 2; ++i) {
      const std::vector<float> column = ramp(3, i * 12 + k, 4);
      transposed.insert(transposed.end(), column.begin(), column.end());
    }
  }
  EXPECT_EQ(floats(file, "transposed"), transposed);
  EXPECT_EQ(floats(file, "part"), ramp(4, 5));
  std::string bytes;  // in the order of the elements, not of the file
  for (const float value : transposed) append_little_endian(bytes, value);
  EXPECT_EQ(file.read_bytes(*file.find("transposed")), bytes);
}

TEST(TensorFile, FindsTheStateDictOfACheckpoint) {
  const TensorFile file = open_tensor_file(path_of("checkpoint.pth"));
  EXPECT_EQ(floats(file, "0.weight"), (std::vector<float>{0.5, 0.5}));
  EXPECT_EQ(floats(file, "1.running_var"), std::vector<float>{5.5});
  EXPECT_EQ(floats(file, "1.num_batches_tracked"), std::vector<float>{9});
  EXPECT_EQ(floats(open_tensor_file(path_of("parameter.pth")), "weight"), (std::vector<float>{1, 2}));
}

core::Error error_of(const std::function<void()>& open) {
  try {
    open();
  } catch (const core::Error& error) {
    return error;
  }
  ADD_FAILURE() << "opened it";
  return {core::ErrorCode::kInternal, "none"};
}

TEST(TensorFile, SaysWhatACheckpointHoldsInstead) {
  const core::Error error = error_of([] { open_tensor_file(path_of("other_key.pth")); });
  EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
  EXPECT_EQ(error.detail().actual, "a dictionary of epoch, net");
}

// {"a": 1, "b": 1, ...} of so many keys, the last of which is the number 5.
std::string without_tensors(int keys) {
  std::string pickle = "\x80\2}(";
  for (int i = 0; i + 1 < keys; ++i) pickle += std::string("U\1") + static_cast<char>('a' + i) + "K\1";
  return pickle + "K\5K\1u.";
}

TEST(TensorFile, NamesTheFirstEightKeysOfWhatIsNoStateDict) {
  const auto held = [](const std::string& pickle) {
    return error_of([&] { read_torch_state_dict(MemoryFile(archive_of(pickle))); }).detail().actual;
  };
  EXPECT_EQ(held(without_tensors(8)), "a dictionary of a, b, c, d, e, f, g, ?");
  EXPECT_EQ(held(without_tensors(9)), "a dictionary of a, b, c, d, e, f, g, h, ...");
  EXPECT_EQ(held("\x80\2}."), "nothing");
}

// {"w": a tensor of `size` floats from the one with number `first` of the storage `storage` on} in an archive.
std::string archive_of_tensor(char storage, int first, int size, const std::string& container = "") {
  std::string tensor = std::string("}U\1wctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1") +
                       storage + "U\3cpuK\1tQK" + static_cast<char>(first) + "K" + static_cast<char>(size) +
                       "\x85K\1\x85\x89NtRs";
  if (!container.empty()) {
    tensor = "}U" + std::string(1, static_cast<char>(container.size())) + container + tensor + "s";
  }
  return archive_of("\x80\2" + tensor + ".");
}

TEST(TensorFile, FindsTheStateDictUnderEachOfItsNames) {
  for (const char* const name : {"", "state_dict", "model_state_dict", "model"}) {
    const std::vector<StoredTensor> tensors = read_torch_state_dict(MemoryFile(archive_of_tensor('0', 0, 2, name)));
    ASSERT_EQ(tensors.size(), 1U) << name;
    EXPECT_EQ(describe(tensors[0]), "float32 [2]") << name;
  }
  EXPECT_EQ(
      error_of([] { read_torch_state_dict(MemoryFile(archive_of_tensor('0', 0, 2, "network"))); }).detail().problem,
      "file holds no tensors");
}

// Storages of 16 floats.
TEST(TensorFile, ATensorBeginsInItsStorage) {
  const auto offset = [](char storage, int first, int size) {
    return read_torch_state_dict(MemoryFile(archive_of_tensor(storage, first, size))).at(0).offset;
  };
  EXPECT_EQ(offset('0', 3, 2), offset('0', 0, 2) + 12);
  EXPECT_EQ(offset('0', 14, 2), offset('0', 0, 2) + 56);
  EXPECT_GT(offset('1', 0, 2), offset('0', 15, 1) + 4);
  EXPECT_EQ(offset('0', 16, 0), offset('0', 0, 2) + 64) << "an empty one may begin at the end";
  const auto message = [&](char storage, int first, int size) {
    return core::message_of([&] { offset(storage, first, size); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_THAT(message('0', 17, 0), core::Says("begins outside of its storage: memory, tensor 'w': got element 17"));
  EXPECT_THAT(message('0', 15, 2), core::Says("does not lie inside", "expected 8 bytes of float32 [2], got 4"));
  EXPECT_THAT(message('2', 0, 2), core::Says("numbers are not in the file", "expected a member 'data/2'"));
}

// Data from byte 100 to 116 of a file, for floats.
TEST(TensorFile, ATensorLiesInsideItsDataFromItsOwnPlaceOn) {
  const auto check = [](uint64_t offset, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    const StoredTensor tensor{.name = "a",
                              .type = TensorType::kFloat32,
                              .shape = std::move(shape),
                              .strides = std::move(strides),
                              .offset = offset};
    return core::code_of([&] { check_stored_tensor(tensor, 100, 116, "x.pth"); });
  };
  EXPECT_EQ(check(100, {4}, {1}), std::nullopt);
  EXPECT_EQ(check(108, {2}, {1}), std::nullopt);
  EXPECT_EQ(check(116, {0}, {1}), std::nullopt);
  EXPECT_EQ(check(100, {2, 2}, {1, 2}), std::nullopt);
  EXPECT_EQ(check(100, {5}, {1}), core::ErrorCode::kCorruptData);
  EXPECT_EQ(check(108, {3}, {1}), core::ErrorCode::kCorruptData) << "as long as its data, but begins in the middle";
  EXPECT_EQ(check(104, {2}, {3}), core::ErrorCode::kCorruptData);
  EXPECT_EQ(check(96, {1}, {1}), core::ErrorCode::kCorruptData);
  EXPECT_EQ(check(120, {0}, {1}), core::ErrorCode::kCorruptData);
}

TEST(TensorFile, SaysHowMuchATensorNeedsAndHas) {
  const auto problem = [](uint64_t offset, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    const StoredTensor tensor{.name = "a", .shape = std::move(shape), .strides = std::move(strides), .offset = offset};
    return core::message_of([&] { check_stored_tensor(tensor, 100, 116, "x.pth"); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_THAT(problem(108, {3}, {1}), core::Says("x.pth, tensor 'a'", "expected 12 bytes of float32 [3], got 8"));
  EXPECT_THAT(problem(100, {2, 2}, {3, 1}), core::Says("expected 20 bytes of float32 [2, 2], got 16"));
  EXPECT_THAT(problem(96, {1}, {1}), core::Says("expected 4 bytes of float32 [1], got 0"));
  EXPECT_THAT(problem(100, {5}, {}), core::Says("another number of strides than sizes"));
  EXPECT_EQ(problem(100, {4}, {0}), "no error") << "one number four times is no more than what is there";
  EXPECT_THAT(problem(100, {5}, {0}), core::Says("more elements than its data", "expected at most 4, got 5"));
  EXPECT_EQ(problem(100, {5, 0}, {1, 1}), "no error") << "an empty one";
  EXPECT_THAT(problem(100, {-1}, {1}), core::Says("impossible shape", "got float32 [-1]"));
}

// A tuple of a thousand sizes costs a thousand instructions once and two each further time.
TEST(TensorFile, LongShapesAreNotCopied) {
  std::string sizes = "(";
  for (int i = 0; i < 1000; ++i) sizes += "K\1";
  sizes += "t";
  // {"a": _rebuild_tensor_v2(("storage", FloatStorage, "0", "cpu", 1), 0, sizes, sizes, False, None)}
  const std::string storage =
      "(U\7storagectorch\nFloatStorage\nU\1"
      "0U\3cpuK\1tQ";
  const std::string pickle =
      "\x80\2}U\1"
      "actorch._utils\n_rebuild_tensor_v2\n(" +
      storage + std::string("K\0", 2) + sizes + sizes + "\x89NtRs.";
  const core::Error error = error_of([&] { read_torch_state_dict(MemoryFile(archive_of(pickle))); });
  EXPECT_EQ(error.detail().problem, "tensor has impossibly many dimensions") << error.what();
}

TEST(TensorFile, ExecutesNothing) {
  const core::Error module = error_of([] { open_tensor_file(path_of("module.pth")); });
  EXPECT_EQ(module.code(), core::ErrorCode::kCorruptData);
  EXPECT_NE(std::string(module.what()).find("refers to code that no state dict needs"), std::string::npos)
      << module.what();
  EXPECT_NE(module.detail().where.find("module.pth"), std::string::npos);
  EXPECT_EQ(error_of([] { open_tensor_file(path_of("legacy.pth")); }).code(), core::ErrorCode::kUnsupported);
}

std::string safetensors_of(std::string_view header, std::string_view data) {
  std::string content;
  append_little_endian<uint64_t>(content, header.size());
  return content.append(header).append(data);
}

TEST(Safetensors, RefusesWhatDoesNotFit) {
  std::string ones;
  for (int i = 0; i < 1000; ++i) ones += "1,";
  const std::map<std::string, std::pair<std::string, std::string>> cases = {
      {"overlaps",
       {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
        "123"}},
      {"gap", {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "123"}},
      {"ends behind the file", {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "123"}},
      {"goes on behind", {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "123"}},
      {"disagree", {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", "123"}},
      {"unknown type", {R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,2]}})", "12"}},
      {"impossible number", {R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", "12"}},
      {"impossible shape",
       {R"({"a":{"dtype":"F64","shape":[9007199254740992,9007199254740992],"data_offsets":[0,2]}})", "12"}},
      {"twice",
       {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
        "12"}},
      {"names a tensor twice",
       {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
        R"("a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
        "123"}},
      {"nested too deeply", {R"({"a":{"dtype":"U8","shape":[[[1]]],"data_offsets":[0,1]}})", "1"}},
      {"malformed entry", {R"({"a":[1]})", ""}},
      {"malformed", {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", "1"}},
      {"got \"F4\"", {R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,2]}})", "12"}},
      {"got 1.5", {R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,2]}})", "12"}},
      {"no 'dtype'", {R"({"a":{"shape":[2],"data_offsets":[0,2]}})", "12"}},
      {"many dimensions", {R"({"a":{"dtype":"U8","shape":[)" + ones + R"(1],"data_offsets":[0,1]}})", "1"}},
      {"no 'shape'", {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "1"}},
      {"does not begin", {R"([1, 2])", ""}},
  };
  for (const auto& [text, content] : cases) {
    const MemoryFile file(safetensors_of(content.first, content.second));
    const core::Error error = error_of([&] { read_safetensors_header(file); });
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData) << text;
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
  // More zeros in front than a file can have, and a thousand brackets.
  std::string huge;
  append_little_endian<uint64_t>(huge, uint64_t{1} << 62);
  EXPECT_EQ(error_of([&] { read_safetensors_header(MemoryFile(huge + "{}")); }).code(), core::ErrorCode::kCorruptData);
  const std::string deep = "{\"a\":" + std::string(100000, '[');
  EXPECT_EQ(error_of([&] { read_safetensors_header(MemoryFile(safetensors_of(deep, ""))); }).code(),
            core::ErrorCode::kCorruptData);
}

TEST(Safetensors, SaysWhichTensorIsWrongByHowMuch) {
  const auto problem = [](const std::string& content) {
    return core::message_of([&] { read_safetensors_header(MemoryFile(content)); }, core::ErrorCode::kCorruptData);
  };
  const auto of = [&](std::string_view header, std::string_view data) { return problem(safetensors_of(header, data)); };
  EXPECT_THAT(of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                 R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                 "123"),
              core::Says("overlaps another: memory, tensor 'b'", "expected data from 2, got 1"));
  EXPECT_THAT(of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "123"),
              core::Says("leaves a gap: memory, tensor 'a'", "expected data from 0, got 1"));
  EXPECT_THAT(of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "123"),
              core::Says("ends behind the file", "expected at most 3, got 4"));
  EXPECT_THAT(of(R"({"a":{"dtype":"I16","shape":[1],"data_offsets":[0,3]}})", "123"),
              core::Says("shape and place disagree", "expected 2 bytes, got 3"));
  const std::string two = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  EXPECT_THAT(of(two, "123"),
              core::Says("goes on behind", fmt::format("expected {} bytes, got {}", two.size() + 10, two.size() + 11)));
  std::string ones = "1";
  for (int i = 1; i < 64; ++i) ones += ",1";
  const std::string begin = R"({"a":{"dtype":"U8","shape":[)", end = R"(],"data_offsets":[0,1]}})";
  EXPECT_EQ(of(begin + ones + end, "1"), "no error") << "64 dimensions";
  EXPECT_THAT(of(begin + ones + ",1" + end, "1"), core::Says("many dimensions", "expected at most 64"));
  const auto of_size = [&](const std::string& size) {
    return of(R"({"a":{"dtype":"U8","shape":[)" + size + R"(,0],"data_offsets":[0,0]}})", "");
  };
  EXPECT_EQ(of_size("9007199254740992"), "no error") << "2^53 rows of nothing";
  EXPECT_THAT(of_size("9007199254740993"),
              core::Says("impossible number", "expected a whole number up to 2^53, got 9007199254740993"));
  EXPECT_EQ(of("{}", ""), "no error");
  std::string longer = safetensors_of("{}", "");
  longer[0] = 3;
  EXPECT_THAT(problem(longer), core::Says("longer than its file", "expected at most 2 bytes, got 3"));
  EXPECT_THAT(problem(longer.substr(0, 7)), core::Says("too short for a safetensors header"));
}

TEST(Safetensors, NamesTheTensorWhoseEntryIsMalformed) {
  const auto problem = [](const std::string& header) {
    return core::message_of([&] { read_safetensors_header(MemoryFile(safetensors_of(header, ""))); },
                            core::ErrorCode::kCorruptData);
  };
  const std::string of_a = ": memory, tensor 'a'",
                    remedy =
                        "; a weights file is safetensors or a state dict that torch.save wrote; get or write it "
                        "again";
  for (const char* const type : {"[]", "[\"U8\"]", "[1]"}) {
    EXPECT_EQ(problem(fmt::format(R"({{"a":{{"dtype":{}}}}})", type)),
              "safetensors header holds a malformed entry" + of_a + remedy)
        << type;
  }
  EXPECT_EQ(problem(R"({"a":{"shape":[0],"data_offsets":[0,0],"dtype":"U8"},"__metadata__":{"n":[1]}})"),
            "safetensors header is nested too deeply: memory, tensor '__metadata__'" + remedy);
  // As much of a text as a line shows.
  const std::string text(41, 'x'), shown = "got \"" + text.substr(1) + "\"" + remedy;
  EXPECT_EQ(problem(fmt::format(R"({{"a":{{"dtype":"{}"}}}})", text)),
            "tensor of an unknown type" + of_a + ": expected BOOL, U8, I8 to I64, F16, BF16, F32 or F64, " + shown);
  EXPECT_EQ(problem(fmt::format(R"({{"a":{{"shape":["{}"]}}}})", text)),
            "safetensors header holds an impossible number" + of_a + ": expected a whole number up to 2^53, " + shown);
}

TEST(Safetensors, AHeaderIsOneWholeObject) {
  for (const std::string header : {"", "{", "{\"a\":", "{\"a\"", "{} x", "{}}", "{},"}) {
    EXPECT_THAT(core::message_of([&] { read_safetensors_header(MemoryFile(safetensors_of(header, ""))); },
                                 core::ErrorCode::kCorruptData),
                ::testing::StartsWith("file does not begin with a safetensors header: memory"))
        << header;
  }
}

// Headers name tensors in any order, and an empty one lies where the next begins.
TEST(Safetensors, GivesTensorsInTheOrderOfTheirPlaces) {
  const std::string header =
      R"({"c":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
      R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  std::string names;
  for (const StoredTensor& tensor : read_safetensors_header(MemoryFile(safetensors_of(header, "123")))) {
    names += fmt::format("{} {} ", tensor.name, tensor.offset - header.size());
  }
  EXPECT_EQ(names, "a 8 b 8 c 10 ");
}

TEST(Safetensors, GivesTheTextsOfItsMetadata) {
  std::map<std::string, std::string> metadata;
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"format":"pt","n":1,"about":"shells"}})";
  EXPECT_EQ(read_safetensors_header(MemoryFile(safetensors_of(header, "1")), &metadata).size(), 1U);
  EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"about", "shells"}}));
}

TEST(Safetensors, PassesOverMetadataAndOtherFields) {
  const std::string header =
      R"({"__metadata__":{"format":"pt","n":1},"a":{"more":[1,"x"],"less":null,"shape":[2],"data_offsets":[0,2],"dtype":"U8"}} )";
  const std::vector<StoredTensor> tensors = read_safetensors_header(MemoryFile(safetensors_of(header, "12")));
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(describe(tensors[0]), "uint8 [2]");
}

TEST(Safetensors, WritesWhatItReads) {
  const core::TempDir temp;
  const std::vector<float> weight = ramp(6), bias = ramp(2);
  const std::vector<FloatTensor> tensors = {{"fc.weight", {2, 3}, weight}, {"fc.bias", {2}, bias}, {"none", {0}, {}}};
  write_safetensors(temp.file("a.safetensors"), tensors);
  const TensorFile file = open_tensor_file(temp.file("a.safetensors"));
  EXPECT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(floats(file, "fc.weight"), weight);
  EXPECT_EQ(floats(file, "fc.bias"), bias);
  EXPECT_EQ(file.find("fc.weight")->offset % 8, 0U);
  EXPECT_THROW(write_safetensors(temp.file("b"), std::vector<FloatTensor>{{"a", {2}, weight}}), core::Error);
  EXPECT_THROW(write_safetensors(temp.file("b"), std::vector<FloatTensor>{{"a", {2}, bias}, {"a", {2}, bias}}),
               core::Error);
}

TEST(Safetensors, WritesAndReadsNumbersOfOtherTypes) {
  const core::TempDir temp;
  const std::vector<int8_t> weight = {-127, 0, 127, -128, 1, -1};
  const std::vector<float> scale = {0.5F, 0.25F};
  const std::vector<uint8_t> zero = {200};
  const std::vector<TypedTensor> tensors = {
      {"fc.weight", TensorType::kInt8, {2, 3}, std::as_bytes(std::span(weight))},
      {"fc.weight_scale", TensorType::kFloat32, {2}, std::as_bytes(std::span(scale))},
      {"fc.activation_zero_point", TensorType::kUint8, {1}, std::as_bytes(std::span(zero))}};
  write_safetensors(temp.file("a"), tensors);
  const TensorFile file = open_tensor_file(temp.file("a"));
  EXPECT_EQ(describe(*file.find("fc.weight")), "int8 [2, 3]");
  EXPECT_EQ(floats(file, "fc.weight"), (std::vector<float>{-127, 0, 127, -128, 1, -1}));
  EXPECT_EQ(floats(file, "fc.weight_scale"), scale);
  EXPECT_EQ(floats(file, "fc.activation_zero_point"), std::vector<float>{200});
  std::vector<TypedTensor> wrong = {{"a", TensorType::kInt8, {2, 3}, std::as_bytes(std::span(scale))}};
  EXPECT_THAT(core::message_of([&] { write_safetensors(temp.file("b"), wrong); }),
              core::Says("tensor 'a'", "6 bytes, int8 [2, 3]", "8 bytes"));
  wrong = {{"a", TensorType::kUint32, {2}, std::as_bytes(std::span(scale))}};
  EXPECT_THAT(core::message_of([&] { write_safetensors(temp.file("b"), wrong); }),
              core::Says("no such type", "expected 8 bytes, uint32 [2], got 8 bytes"));
}

// IEEE 754's binary16: zeros, the smallest and largest subnormal numbers, the smallest normal one, 1, -2, the largest,
// infinities and no number.
TEST(Safetensors, ReadsEachKindOfHalfPrecisionNumber) {
  const core::TempDir temp;
  const std::vector<uint16_t> halves = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400,
                                        0x3c00, 0xc000, 0x7bff, 0x7c00, 0xfc00, 0x7e00};
  write_safetensors(temp.file("a"),
                    std::vector<TypedTensor>{{"h", TensorType::kFloat16, {12}, std::as_bytes(std::span(halves))}});
  const std::vector<float> values = floats(open_tensor_file(temp.file("a")), "h");
  ASSERT_EQ(values.size(), halves.size());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> expected = {0, 0,  0x1p-24F, -0x1p-24F, 1023 * 0x1p-24F, 0x1p-14F,
                                       1, -2, 65504,    kInfinity, -kInfinity};
  EXPECT_EQ(std::vector<float>(values.begin(), values.end() - 1), expected);
  EXPECT_FALSE(std::signbit(values[0]));
  EXPECT_TRUE(std::signbit(values[1]));
  EXPECT_TRUE(std::isnan(values.back()));
}

// A header of 640 bytes, 0x0280, begins as pickles of protocol 2 do.
TEST(Safetensors, HeadersOfAnyLengthAreToldFromPickles) {
  const core::TempDir temp;
  for (const size_t length : {640, 128, 896}) {
    std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
    header.resize(length, ' ');
    core::local_file_system().write_file_atomically(temp.file("a"), safetensors_of(header, "12"));
    EXPECT_EQ(floats(open_tensor_file(temp.file("a")), "a"), (std::vector<float>{49, 50})) << length;
  }
}

TEST(TensorFile, DropsWhatWrappersPutInFront) {
  const core::TempDir temp;
  const auto names = [&](const std::string& first, const std::string& second) {
    const std::vector<float> one = {1};
    write_safetensors(temp.file("a"), std::vector<FloatTensor>{{first, {1}, one}, {second, {1}, one}});
    std::string text;
    const TensorFile file = open_tensor_file(temp.file("a"));
    for (const StoredTensor& tensor : file.tensors()) text += tensor.name + " ";
    return text;
  };
  EXPECT_EQ(names("module.a", "module.b"), "a b ");
  EXPECT_EQ(names("_orig_mod.a", "_orig_mod.b"), "a b ");
  EXPECT_EQ(names("module._orig_mod.a", "module._orig_mod.b"), "a b ");
  EXPECT_EQ(names("_orig_mod.module.a", "_orig_mod.module.b"), "a b ");
  EXPECT_EQ(names("module.a", "b"), "module.a b ") << "a model's own name";
  EXPECT_EQ(names("n_averaged", "module.b"), "b ") << "an AveragedModel";
  EXPECT_EQ(names("n_averaged", "module._orig_mod.b"), "b ");
  EXPECT_EQ(names("n_averaged", "b"), "n_averaged b ");
  EXPECT_EQ(names("_orig_mod.n_averaged", "_orig_mod.module.b"), "b ") << "a compiled AveragedModel";
  EXPECT_EQ(names("module.n_averaged", "module.module.b"), "b ") << "one that trains in parallel";
  EXPECT_EQ(names("n_averaged", "module.module.b"), "b ") << "one of a model that trains in parallel";
  EXPECT_EQ(names("n_averaged", "module.module._orig_mod.b"), "b ");
  EXPECT_EQ(names("module.module.a", "module.module.b"), "module.a module.b ") << "a model's own name";
}

void read_all(const MemoryFile& file) {
  expect_value_or_error([&] {
    const auto tensors = looks_like_torch(file) ? read_torch_state_dict(file) : read_safetensors_header(file);
    const TensorFile opened(std::make_unique<MemoryFile>(file), tensors);
    for (const StoredTensor& tensor : tensors) opened.read_floats(tensor);
  });
  EXPECT_LE(file.longest_read(), file.size());
}

TEST(TensorFile, AnswersDamageWithAnError) {
  for (const char* name : {"tensors.safetensors", "tensors.pth", "checkpoint.pth", "module.pth"}) {
    const std::string good = testdata(name);
    for_each_mutation(good, 3000, [](const std::string& content) { read_all(MemoryFile(content)); });
  }
  for_each_truncation(testdata("tensors.safetensors"), [](std::string_view part) {
    EXPECT_THROW(read_safetensors_header(MemoryFile(part)), core::Error);
  });
  const std::string good = testdata("tensors.pth");
  for (size_t length = 0; length < good.size(); length += 7) read_all(MemoryFile(good.substr(0, length)));
}

TEST(TensorFile, AMessageHas200CharactersOfAName) {
  EXPECT_EQ(tensor_place("x.pth", ""), "x.pth");
  EXPECT_EQ(tensor_place("x.pth", std::string(201, 'n')), "x.pth, tensor '" + std::string(200, 'n') + "'");
}

// Numbers that a file can claim, up to where sums of them would not fit.
TEST(TensorFile, ShapesEndWhereTheirBytesCannotBeCounted) {
  const auto problem = [](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    const StoredTensor tensor{.name = "a", .shape = std::move(shape), .strides = std::move(strides), .offset = 100};
    return core::message_of([&] { check_stored_tensor(tensor, 100, 116, "x.pth"); }, core::ErrorCode::kCorruptData);
  };
  constexpr int64_t kMost = int64_t{1} << 60;
  EXPECT_THAT(problem({kMost}, {0}),
              core::Says("more elements than its data", "expected at most 4, got 1152921504606846976"));
  EXPECT_THAT(problem({kMost + 1}, {0}), core::Says("impossible shape", "got float32 [1152921504606846977]"));
  EXPECT_THAT(problem({2}, {kMost - 1}),
              core::Says("does not lie inside", "expected 4611686018427387904 bytes of float32 [2], got 16"));
  EXPECT_THAT(problem({2}, {kMost}), core::Says("impossible shape", "got float32 [2]"));
  EXPECT_THAT(problem({2}, {-1}), core::Says("impossible shape", "got float32 [2]"));
  EXPECT_THAT(problem({0, kMost + 1}, {0, 0}), core::Says("impossible shape", "got float32 [0, 1152921504606846977]"))
      << "an empty one";
}

TEST(TensorFile, StateDictsOfOldVersionsAreKnownByFourBytes) {
  const auto is_torch = [](const std::string& content) { return looks_like_torch(MemoryFile(content)); };
  const std::string begin = "\x80\x02\x8a\x0a";
  EXPECT_TRUE(is_torch(begin));
  EXPECT_TRUE(is_torch("\x80\x05\x8a\x0a"));
  EXPECT_FALSE(is_torch("\x80\x06\x8a\x0a"));
  EXPECT_FALSE(is_torch(begin.substr(0, 3)));
  for (const size_t changed : {0U, 2U, 3U}) {
    std::string other = begin;
    other[changed] = 'x';
    EXPECT_FALSE(is_torch(other + "more")) << changed;
  }
  EXPECT_EQ(core::code_of([&] { read_torch_state_dict(MemoryFile(begin)); }), core::ErrorCode::kUnsupported);
}

TEST(TensorFile, SaysWhatIsWrongWithAStateDict) {
  const std::string again = "; write the file again with torch.save(model.state_dict(), path)";
  using Members = std::vector<std::pair<std::string, std::string>>;
  const auto of_members = [](const Members& members, core::ErrorCode code = core::ErrorCode::kCorruptData) {
    return core::message_of([&] { read_torch_state_dict(MemoryFile(archive_of_members(members))); }, code);
  };
  EXPECT_EQ(of_members({{"a/other", ""}}),
            "zip archive is none of PyTorch's: memory: expected a member 'data.pkl'" + again);
  EXPECT_EQ(of_members({{"a/data.pkl", "\x80\2]."}}),
            "file holds no state dict: memory: expected a dictionary of tensors" + again);
  const auto of_order = [&](const std::string& order, core::ErrorCode code) {
    return of_members({{"a/data.pkl", "\x80\2}."}, {"a/byteorder", order}}, code);
  };
  const std::string swap =
      "; load it in Python on a little-endian machine and save it again: torch.save(torch.load(path), path)";
  EXPECT_EQ(of_order("big", core::ErrorCode::kUnsupported),
            "state dict in another byte order: memory: expected little, got big" + swap);
  EXPECT_EQ(of_order(std::string(15, 'x'), core::ErrorCode::kUnsupported),
            "state dict in another byte order: memory: expected little, got " + std::string(15, 'x') + swap);
  for (const std::string& order : {std::string("little"), std::string(16, 'x')}) {
    EXPECT_THAT(of_order(order, core::ErrorCode::kCorruptData),
                ::testing::StartsWith("file holds no tensors: memory: "))
        << order;
  }

  // {"w": _rebuild_tensor_v2(arguments)}
  const auto of_tensor = [](const std::string& arguments, core::ErrorCode code = core::ErrorCode::kCorruptData) {
    const std::string pickle =
        "\x80\2}U\1"
        "wctorch._utils\n_rebuild_tensor_v2\n" +
        arguments + "Rs.";
    return core::message_of([&] { read_torch_state_dict(MemoryFile(archive_of(pickle))); }, code);
  };
  const std::string storage =
      "(U\7storagectorch\nFloatStorage\nU\1"
      "0U\3cpuK\1tQ";
  const std::string first("K\0", 2), of_w = ": memory, tensor 'w'";
  const auto ones = [](size_t count) {
    std::string tuple = "(";
    for (size_t i = 0; i < count; ++i) tuple += "K\1";
    return tuple + "t";
  };
  EXPECT_EQ(of_tensor("(" + storage + first + ones(64) + ones(64) + "t"), "no error");
  EXPECT_EQ(of_tensor("(" + storage + first + ones(65) + ones(65) + "t"),
            "tensor has impossibly many dimensions" + of_w + ": expected at most 64, got 65" + again);
  const std::string unknown = "tensor is described in an unknown way" + of_w + again;
  EXPECT_EQ(of_tensor(")"), unknown);
  EXPECT_EQ(of_tensor("(N" + first + ones(1) + ones(1) + "t"), unknown);
  EXPECT_EQ(of_tensor("(" + storage + "N" + ones(1) + ones(1) + "t"), unknown);
  EXPECT_EQ(of_tensor("(" + storage + first + "N" + ones(1) + "t"), unknown);
  EXPECT_EQ(of_tensor("(" + storage + first + ones(1) + "Nt"), unknown);
  EXPECT_EQ(of_tensor("(" + storage + first + ones(1) + "t"), unknown);
  EXPECT_EQ(of_tensor("(" + storage + first + "N\x85" + ones(1) + "t"),
            "tensor's shape or strides are no whole numbers" + of_w + again);
  EXPECT_EQ(of_tensor("((U\7storageNU\1"
                      "0tQ" +
                      first + ones(1) + ones(1) + "t"),
            "tensor's storage is described in an unknown way" + of_w + again);
  EXPECT_EQ(of_tensor("((U\7storagectorch\nFloatStorage\nNtQ" + first + ones(1) + ones(1) + "t"),
            "tensor's storage is described in an unknown way" + of_w + again);
  EXPECT_EQ(of_tensor("((U\7storagectorch\nComplexFloatStorage\nU\1"
                      "0tQ" +
                          first + ones(1) + ones(1) + "t",
                      core::ErrorCode::kUnsupported),
            "tensor's numbers are of a type that is not read" + of_w +
                ": expected bool, uint8, int8 to int64, float16, bfloat16, float32 or float64, got "
                "ComplexFloatStorage; save the weights in one of these types, without the tensors that no model needs");
}

// A file of a tebibyte, of which there are only the first eight bytes.
class HugeFile : public core::ReadableFile {
 public:
  explicit HugeFile(uint64_t header_bytes) { append_little_endian<uint64_t>(length_, header_bytes); }
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return uint64_t{1} << 40; }
  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset + out.size() > length_.size()) throw std::logic_error("read behind the header's length");
    length_.copy(reinterpret_cast<char*>(out.data()), out.size(), offset);
  }

 private:
  const std::string path_ = "huge";
  std::string length_;
};

TEST(Safetensors, HeadersHaveAtMost100Megabytes) {
  EXPECT_THROW(read_safetensors_header(HugeFile(100'000'000)), std::logic_error) << "the longest is read";
  EXPECT_THAT(
      core::message_of([] { read_safetensors_header(HugeFile(100'000'001)); }, core::ErrorCode::kCorruptData),
      ::testing::StartsWith("safetensors header is longer than its file: huge: expected at most 100000000 bytes, "
                            "got 100000001; "));
}

TEST(TensorFile, KnowsEachTypeOfNumber) {
  std::string names, of_safetensors;
  for (int i = 0; i <= static_cast<int>(TensorType::kUint64); ++i) {
    const auto type = static_cast<TensorType>(i);
    names += fmt::format("{} {} ", tensor_type_name(type), tensor_type_bytes(type));
    of_safetensors += fmt::format("'{}' ", safetensors_type_name(type));
  }
  EXPECT_EQ(names,
            "bool 1 uint8 1 int8 1 int16 2 int32 4 int64 8 float16 2 bfloat16 2 float32 4 float64 8 uint16 2 uint32 4 "
            "uint64 8 ");
  EXPECT_EQ(of_safetensors, "'BOOL' 'U8' 'I8' 'I16' 'I32' 'I64' 'F16' 'BF16' 'F32' 'F64' '' '' '' ");
}

TEST(TensorFile, ReadsANumberOfEachType) {
  std::string content;
  std::vector<StoredTensor> tensors;
  const auto add = [&](TensorType type, auto number) {
    tensors.push_back({.name = std::string(tensor_type_name(type)), .type = type, .offset = content.size()});
    append_little_endian(content, number);
  };
  add(TensorType::kBool, uint8_t{1});
  add(TensorType::kUint8, uint8_t{200});
  add(TensorType::kInt8, int8_t{-100});
  add(TensorType::kInt16, int16_t{-300});
  add(TensorType::kInt32, int32_t{-70000});
  add(TensorType::kInt64, int64_t{-1} * (int64_t{1} << 40));
  add(TensorType::kFloat16, uint16_t{0x3e00});
  add(TensorType::kBfloat16, uint16_t{0xc020});
  add(TensorType::kFloat32, 0.1F);
  add(TensorType::kFloat64, 0.1);
  add(TensorType::kUint16, uint16_t{40000});
  add(TensorType::kUint32, uint32_t{3'000'000'000});
  add(TensorType::kUint64, uint64_t{1} << 63);
  const TensorFile file(std::make_unique<MemoryFile>(content), tensors);
  std::vector<float> values;
  for (const StoredTensor& tensor : file.tensors()) {
    const std::vector<float> one = file.read_floats(tensor);
    ASSERT_EQ(one.size(), 1U) << tensor.name;
    values.push_back(one[0]);
    EXPECT_EQ(file.read_bytes(tensor), content.substr(tensor.offset, tensor_type_bytes(tensor.type))) << tensor.name;
  }
  EXPECT_EQ(values,
            (std::vector<float>{1, 200, -100, -300, -70000, -0x1p40F, 1.5F, -2.5F, 0.1F, 0.1F, 40000, 3e9F, 0x1p63F}));
}

TEST(TensorFile, DropsFourWrappersAtMost) {
  const core::TempDir temp;
  const std::vector<float> one = {1};
  std::string wrappers;
  for (int levels = 1; levels <= 5; ++levels) {
    wrappers += "_orig_mod.";
    write_safetensors(temp.file("a"), std::vector<FloatTensor>{{wrappers + "a", {1}, one}});
    EXPECT_EQ(open_tensor_file(temp.file("a")).tensors().at(0).name, levels <= 4 ? "a" : "_orig_mod.a") << levels;
  }
}

TEST(TensorFile, SaysWhatToDoWithFilesOfOtherPrograms) {
  const core::TempDir temp;
  const auto message = [&](const std::string& name, const std::string& content, core::ErrorCode code) {
    core::local_file_system().write_file_atomically(temp.file(name), content);
    return core::message_of([&] { static_cast<void>(open_tensor_file(temp.file(name))); }, code);
  };
  constexpr auto kUnsupported = core::ErrorCode::kUnsupported, kCorrupt = core::ErrorCode::kCorruptData;
  const std::string begin = "weights are not read from files of this format, which are written for other programs: ",
                    expected = ": expected safetensors, a state dict of torch.save or a checkpoint",
                    run = "; name the run that it was written from, or its export as safetensors",
                    hdf5 = "\x89HDF\r\n\x1a\n";
  EXPECT_EQ(message("a", hdf5 + "x", kUnsupported), begin + temp.file("a") + expected + ", got HDF5" + run);
  EXPECT_THAT(message("a", hdf5, kCorrupt), ::testing::HasSubstr("longer than its file")) << "too short to be told";
  EXPECT_EQ(message("m.onnx", "\x08\x0a\x12\x09trainyard", kUnsupported),
            begin + temp.file("m.onnx") + expected + ", got ONNX" + run);
  const std::string safetensors = safetensors_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "12");
  EXPECT_EQ(message("m.onnx", safetensors, kCorrupt), "no error") << "safetensors under another name";
  for (const int protocol : {2, 3, 4, 5}) {
    EXPECT_EQ(message("p", std::string("\x80") + static_cast<char>(protocol) + "}q(X conv2d", kUnsupported),
              "weights are not read from plain pickles, such as Paddle's .pdparams: " + temp.file("p") + expected +
                  "; write them as safetensors, under the names of the model here");
  }
  for (const int protocol : {1, 6}) {
    EXPECT_THAT(message("p", std::string("\x80") + static_cast<char>(protocol) + "}q(X conv2d", kCorrupt),
                ::testing::HasSubstr("longer than its file"))
        << protocol;
  }
}

}  // namespace
}  // namespace trainyard::formats::tensor_file_test
