#include "trainyard/formats/logs/tf_profile.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"

namespace trainyard::formats::tf_profile_test {
namespace {

TfProfile two_nodes() {
  const std::string cpu = "/job:localhost/replica:0/task:0/device:CPU:0",
                    other = "/job:localhost/replica:0/task:0/device:CPU:1";
  TfProfileNode input{.id = 0, .name = "input", .op = "input", .inputs = {}, .shape = {2, 3, 4, 4}};
  TfProfileNode conv{.id = 1,
                     .name = "conv\xff",
                     .op = "convolution",
                     .inputs = {0},
                     .shape = {2, 8, 4, 4},
                     .device = cpu,
                     .float_ops = 6912};
  conv.executions[0] = {{cpu, 1700000000000000, 30}, {other, 1700000000000010, 40}, {cpu, 1700000000000040, 5}};
  conv.executions[7] = {{cpu, 1700000000001000, 20}};
  return {.nodes = {input, conv}, .steps = {0, 7}};
}

// By the wire format's definition: field 3, packed, of two varints.
TEST(TfProfile, StepsStandAtTheEnd) {
  const std::string bytes = tf_profile_proto(two_nodes());
  EXPECT_EQ(bytes.substr(bytes.size() - 4), std::string("\x1a\x02\x00\x07", 4));
  EXPECT_EQ(tf_profile_proto({}), "");
}

// tests/protobuf_parses_profile.py parses it with TensorFlow's description of the message.
TEST(TfProfile, WritesAFileForProtobuf) {
  const char* folder = std::getenv("TRAINYARD_TENSORBOARD_DIR");
  if (folder == nullptr) return;
  core::local_file_system().write_file_atomically(core::join_path(folder, "profile.pb"), tf_profile_proto(two_nodes()));
}

}  // namespace
}  // namespace trainyard::formats::tf_profile_test
