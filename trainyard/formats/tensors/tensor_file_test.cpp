#include "trainyard/formats/tensors/tensor_file.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/tensors/safetensors.h"
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

}  // namespace
}  // namespace trainyard::formats::tensor_file_test
