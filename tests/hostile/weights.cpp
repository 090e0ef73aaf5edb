// Files of weights: safetensors, PyTorch's state dicts, TensorFlow's checkpoints and what is no HDF5.
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/hostile/hostile.h"
#include <fmt/format.h>

#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/formats/tensors/torch_state_dict.h"
#include "trainyard/formats/testing/tensorflow_checkpoint_writer.h"
#include "trainyard/formats/testing/testdata.h"
#include "trainyard/formats/testing/torch_archive.h"

namespace trainyard::hostile {
namespace {

using core::ErrorCode;
using Tensors = std::vector<std::pair<std::string, std::vector<float>>>;

Tensors any_tensors(Case& drawn) {
  Tensors tensors;
  for (int64_t i = drawn.between(1, 5); i > 0; --i) {
    std::vector<float> values(static_cast<size_t>(drawn.between(1, 30)));
    for (float& value : values) value = drawn.draw.uniform(-1, 1);
    tensors.emplace_back(fmt::format("layer{}.weight", i), std::move(values));
  }
  return tensors;
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape, int64_t begin,
                  int64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, type, shape, begin, end);
}

std::string safetensors_of(const std::string& header, const std::string& data) {
  std::string content;
  formats::append_little_endian<uint64_t>(content, header.size());
  return content + header + data;
}

void read_all(const std::string& content) {
  const formats::TensorFile file(std::make_unique<formats::MemoryFile>(content),
                                 formats::read_safetensors_header(formats::MemoryFile(content)));
  for (const formats::StoredTensor& tensor : file.tensors()) static_cast<void>(file.read_floats(tensor));
}

std::string run_safetensors(Case& drawn) {
  const Tensors tensors = any_tensors(drawn);
  std::string header, data;
  for (const auto& [name, values] : tensors) {
    const auto begin = static_cast<int64_t>(data.size());
    for (const float value : values) formats::append_little_endian(data, value);
    header += (header.empty() ? "" : ",") +
              entry(name, "F32", fmt::format("[{}]", values.size()), begin, static_cast<int64_t>(data.size()));
  }
  std::string content = safetensors_of("{" + header + "}", data);
  const auto total = static_cast<int64_t>(data.size());
  const std::string end = fmt::format("{}", total);
  const auto expect_corrupt = [&](const std::string& what, const std::string& damaged) {
    refused(ErrorCode::kCorruptData, what, [&] { read_all(damaged); });
    return "safetensors " + what;
  };
  switch (drawn.below(9)) {
    case 0: {
      const formats::TensorFile file(std::make_unique<formats::MemoryFile>(content),
                                     formats::read_safetensors_header(formats::MemoryFile(content)));
      for (const auto& [name, values] : tensors) {
        const formats::StoredTensor* stored = file.find(name);
        check(stored != nullptr && file.read_floats(*stored) == values, "safetensors has other values");
      }
      return "safetensors whole";
    }
    case 1:
      content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))));
      return expect_corrupt("cut", content);
    case 2:
      return expect_corrupt(
          "behind the end",
          safetensors_of("{" + header + "," + entry("z", "F32", "[1]", total, total + 4) + "}", data));
    case 3:
      return expect_corrupt("overlap", safetensors_of("{" + header + "," + entry("z", "F32", "[1]", 0, 4) + "}", data));
    case 4:
      return expect_corrupt(
          "gap",
          safetensors_of("{" + header + "," + entry("z", "F32", "[1]", total + 4, total + 8) + "}", data + "12345678"));
    case 5:
      return expect_corrupt("huge shape",
                            safetensors_of("{" + header + "," +
                                               entry("z", "F64",
                                                     fmt::format("[{},{},{}]", int64_t{1} << drawn.between(40, 62),
                                                                 int64_t{1} << drawn.between(40, 62), drawn.below(3)),
                                                     total, total + 8) +
                                               "}",
                                           data + "12345678"));
    case 6:
      return expect_corrupt(
          "unknown type",
          safetensors_of("{" + header + "," + entry("z", "Q7", "[1]", total, total + 4) + "}", data + "1234"));
    case 7: {
      std::string length;
      formats::append_little_endian<uint64_t>(length, drawn.draw.next_u64() >> drawn.below(32));
      return expect_corrupt("length of the header", content.replace(0, 8, length));
    }
    default: {
      drawn.flip_bit(content);
      // No checksum: only memory is at stake, and what is read lies inside.
      return taken("safetensors with a bit flipped", [&] { read_all(content); }) ? "safetensors bit flipped, read"
                                                                                 : "safetensors bit flipped, refused";
    }
  }
}

std::string run_torch(Case& drawn) {
  static const std::vector<std::string> kFiles = {formats::testdata("tensors.pth"), formats::testdata("checkpoint.pth"),
                                                  formats::testdata("parameter.pth")};
  const auto read = [](const std::string& content) {
    const formats::TensorFile file(std::make_unique<formats::MemoryFile>(content),
                                   formats::read_torch_state_dict(formats::MemoryFile(content)));
    size_t numbers = 0;
    for (const formats::StoredTensor& tensor : file.tensors()) numbers += file.read_floats(tensor).size();
    return numbers;
  };
  std::string content = kFiles[static_cast<size_t>(drawn.below(static_cast<int64_t>(kFiles.size())))];
  switch (drawn.below(4)) {
    case 0:
      check(read(content) > 0, "a whole state dict has no numbers");
      return "state dict whole";
    case 1:
      content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))));
      // A very short one may look like the format from before PyTorch 1.6.
      if (taken("a state dict that was cut", [&] { read(content); }))
        throw Fault("a state dict that was cut was taken");
      return "state dict cut";
    case 2: {
      // A pickle that would call a function, with what it would call it with.
      const std::string module = drawn.draw.next_bool() ? "os\nsystem" : "builtins\neval";
      const std::string word = drawn.bytes(drawn.below(9));
      const std::string pickle =
          "\x80\x02"
          "c" +
          module + "\nU" + static_cast<char>(word.size()) + word + "\x85R.";
      if (taken("a pickle that calls a function", [&] { read(formats::archive_of(pickle)); }))
        throw Fault("a pickle that calls a function was taken");
      return "state dict calls code";
    }
    default:
      for (int64_t i = drawn.between(1, 4); i > 0; --i) drawn.flip_bit(content);
      return taken("a state dict with bits flipped", [&] { read(content); }) ? "state dict bits flipped, read"
                                                                             : "state dict bits flipped, refused";
  }
}

std::string run_tensorflow(Case& drawn) {
  std::map<std::string, formats::TestVariable> variables;
  for (const auto& [name, values] : any_tensors(drawn)) {
    variables[name] = {.shape = {static_cast<int64_t>(values.size())}, .values = values};
  }
  const int64_t step = drawn.below(1 << 20);
  const std::string prefix = core::join_path(drawn.folder, "model.ckpt");
  formats::write_tensorflow_checkpoint(prefix, variables, step);
  const int64_t how = drawn.below(4);
  const std::string path = prefix + (drawn.draw.next_bool() ? ".index" : ".data-00000-of-00001");
  core::FileSystem& files = core::local_file_system();
  if (how > 0) {
    std::string content = files.read_file(path);
    if (how == 3) {
      content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))));
    } else {
      drawn.flip_bit(content);
    }
    const auto out = files.open_write(path);
    out->write(content);
    out->close();
  }
  bool right = true;
  const bool read = taken("a TensorFlow checkpoint", [&] {
    const formats::TensorFlowCheckpoint found = formats::open_tensorflow_checkpoint(prefix);
    right = found.global_step == step;
    for (const auto& [name, variable] : variables) {
      const formats::StoredTensor* stored = found.tensors.find(name);
      right = right && stored != nullptr && found.tensors.read_floats(*stored) == variable.values;
    }
  });
  // Blocks and numbers have checksums; only the padding of the index's last bytes has none.
  check(!read || right, "a TensorFlow checkpoint has other values");
  check(read || how != 0, "a whole TensorFlow checkpoint was refused");
  return how == 0 ? "TensorFlow whole" : read ? "TensorFlow damaged, right" : "TensorFlow damaged, refused";
}

// What libhdf5 itself does with damage in the middle of a file is not tested: it is not made for hostile files.
std::string run_hdf5(Case& drawn) {
  const std::vector<float> values = {1, 2, 3};
  std::string content = formats::encode_hdf5({.datasets = {{"kernel", {3}, [&] { return values; }}}});
  const std::string path = core::join_path(drawn.folder, "weights.h5");
  const int64_t how = drawn.below(3);
  if (how == 1) content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))));
  if (how == 2) content = drawn.bytes(drawn.below(4096));
  core::local_file_system().write_file_atomically(path, content);
  if (how == 0) {
    check(formats::Hdf5File(path).read("/kernel").values == values, "HDF5 has other values");
    return "HDF5 whole";
  }
  refused(ErrorCode::kCorruptData, "what is no HDF5", [&] { formats::Hdf5File file(path); });
  return how == 1 ? "HDF5 cut" : "HDF5 noise";
}

}  // namespace

std::string run_weights(Case& drawn) {
  switch (drawn.below(8)) {
    case 0:
    case 1:
    case 2:
      return run_safetensors(drawn);
    case 3:
    case 4:
      return run_torch(drawn);
    case 5:
    case 6:
      return run_tensorflow(drawn);
    default:
      return run_hdf5(drawn);
  }
}

}  // namespace trainyard::hostile
