#include "trainyard/formats/logs/tf_profile.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/testing/protobuf_text.h"

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

// Field numbers of tfprof_log.proto.
TEST(TfProfile, WritesEachNodeWithItsInputsAndItsRunsByStepAndDevice) {
  TfProfile profile = two_nodes();
  TfProfileNode sum{.id = 9, .name = "sum ~\x7f", .op = "add", .inputs = {1, 0}, .shape = {2}, .device = "cpu"};
  sum.float_ops = 5;
  sum.executions[7] = {{"cpu", 200, 10}, {"cpu", 100, 5}};
  sum.executions[6] = sum.executions[8] = {};
  profile.nodes.push_back(sum);
  using enum FieldContent;
  const FieldContents contents = {{"1", kMessage},
                                  {"1.2", kMessage},
                                  {"1.2.2", kMessage},
                                  {"1.2.4", kPackedInt64},
                                  {"1.2.12", kMessage},
                                  {"1.2.12.2", kMessage},
                                  {"1.2.12.2.5", kMessage},
                                  {"1.2.12.2.5.2", kMessage},
                                  {"1.2.12.2.5.2.1", kMessage},
                                  {"1.2.12.2.5.2.1.1", kPackedInt64},
                                  {"3", kPackedInt64}};
  const std::string device = "/job:localhost/replica:0/task:0/device:CPU:";
  EXPECT_EQ(message_text(tf_profile_proto(profile), contents),
            "1.1: 0\n1.2.1: 'input'\n1.2.4: 2 3 4 4\n1.2.5: 'input'\n1.2.6: ''\n1.2.8: 0\n1.2.9: 'input'\n1.2.13: 0\n"
            "1.1: 1\n1.2.1: 'conv?'\n1.2.2.1: 0\n1.2.2.2: 0\n1.2.4: 2 8 4 4\n1.2.5: 'convolution'\n1.2.6: '" +
                device +
                "0'\n1.2.8: 6912\n1.2.9: 'convolution'\n"
                "1.2.12.1: 0\n1.2.12.2.1: 3\n1.2.12.2.2: 1700000000000000\n1.2.12.2.3: 1700000000000050\n"
                "1.2.12.2.5.1: '" +
                device +
                "0'\n1.2.12.2.5.2.1.1: 1700000000000000 30\n1.2.12.2.5.2.1.1: 1700000000000040 5\n"
                "1.2.12.2.5.1: '" +
                device + "1'\n1.2.12.2.5.2.1.1: 1700000000000010 40\n1.2.12.2.6: '" + device + "0'\n1.2.12.2.6: '" +
                device +
                "1'\n"
                "1.2.12.1: 7\n1.2.12.2.1: 1\n1.2.12.2.2: 1700000000001000\n1.2.12.2.3: 1700000000001020\n"
                "1.2.12.2.5.1: '" +
                device + "0'\n1.2.12.2.5.2.1.1: 1700000000001000 20\n1.2.12.2.6: '" + device +
                "0'\n1.2.13: 1\n"
                "1.1: 9\n1.2.1: 'sum ~?'\n1.2.2.1: 0\n1.2.2.2: 1\n1.2.2.1: 1\n1.2.2.2: 0\n1.2.4: 2\n1.2.5: 'add'\n"
                "1.2.6: 'cpu'\n1.2.8: 5\n1.2.9: 'add'\n"
                "1.2.12.1: 7\n1.2.12.2.1: 2\n1.2.12.2.2: 100\n1.2.12.2.3: 210\n1.2.12.2.5.1: 'cpu'\n"
                "1.2.12.2.5.2.1.1: 200 10\n1.2.12.2.5.2.1.1: 100 5\n1.2.12.2.6: 'cpu'\n1.2.13: 9\n"
                "3: 0 7\n");
}

// tests/protobuf_parses_profile.py parses it with TensorFlow's description of the message.
TEST(TfProfile, WritesAFileForProtobuf) {
  const char* folder = std::getenv("TRAINYARD_TENSORBOARD_DIR");
  if (folder == nullptr) return;
  core::local_file_system().write_file_atomically(core::join_path(folder, "profile.pb"), tf_profile_proto(two_nodes()));
}

}  // namespace
}  // namespace trainyard::formats::tf_profile_test
