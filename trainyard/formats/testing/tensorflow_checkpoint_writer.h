// Writes checkpoints as TensorFlow does, of one shard, for the tests of what reads them. For tests only.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <protozero/pbf_writer.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/formats/testing/sstable_builder.h"

namespace trainyard::formats {

struct TestVariable {
  std::vector<int64_t> shape{};
  std::vector<float> values{};
};

// Writes "<prefix>.index" and "<prefix>.data-00000-of-00001" with the variables as floats and the int64 global_step,
// and the text "checkpoint" of the folder, which names the prefix.
inline void write_tensorflow_checkpoint(const std::string& prefix, const std::map<std::string, TestVariable>& variables,
                                        int64_t global_step) {
  std::string numbers;
  std::map<std::string, std::string> entries{{"", "\x08\x01\x1a\x02\x08\x01"}};  // one shard, of version 1
  const auto add = [&](const std::string& name, int type, const std::vector<int64_t>& shape, const std::string& bytes) {
    std::string sizes;
    for (const int64_t size : shape) {
      std::string dimension;
      protozero::pbf_writer(dimension).add_int64(1, size);
      protozero::pbf_writer(sizes).add_message(2, dimension);
    }
    protozero::pbf_writer entry(entries[name]);
    entry.add_enum(1, type);
    entry.add_message(2, sizes);
    entry.add_int64(4, static_cast<int64_t>(numbers.size()));
    entry.add_int64(5, static_cast<int64_t>(bytes.size()));
    entry.add_fixed32(6, masked_crc32c(bytes));
    numbers += bytes;
  };
  for (const auto& [name, variable] : variables) {
    std::string bytes;
    for (const float value : variable.values) append_little_endian(bytes, value);
    add(name, 1, variable.shape, bytes);
  }
  std::string step;
  append_little_endian(step, global_step);
  add("global_step", 9, {}, step);
  core::FileSystem& files = core::local_file_system();
  files.make_directories(core::parent_path(prefix));
  files.write_file_atomically(prefix + ".index", table_of({entries.begin(), entries.end()}));
  files.write_file_atomically(prefix + ".data-00000-of-00001", numbers);
  files.write_file_atomically(core::join_path(core::parent_path(prefix), "checkpoint"),
                              "model_checkpoint_path: \"" + core::base_name(prefix) + "\"\n");
}

}  // namespace trainyard::formats
