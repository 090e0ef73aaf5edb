#include "trainyard/parallel/servers/wire.h"

#include <cstdio>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::parallel::wire::wire_test {
namespace {

using ::testing::HasSubstr;

IncomingMessage received(const std::string& bytes) {
  return {{std::as_bytes(std::span(bytes))}, nullptr};
}

// In pieces of `size` bytes, as gRPC's slices may cut it anywhere.
IncomingMessage in_pieces(const std::string& bytes, size_t size) {
  std::vector<std::span<const std::byte>> pieces;
  for (size_t at = 0; at < bytes.size(); at += size) {
    pieces.push_back(std::as_bytes(std::span(bytes)).subspan(at, std::min(size, bytes.size() - at)));
  }
  return {std::move(pieces), nullptr};
}

template <typename Message>
void expect_same(const Message& message) {
  const std::string bytes = encode(message);
  EXPECT_EQ(decode<Message>(received(bytes)), message);
  EXPECT_EQ(decode<Message>(in_pieces(bytes, 3)), message);
}

const Sender kSender{.worker = 3, .token = 0xfedcba9876543210};

RegisterRequest registration() {
  return {.version = kVersion,
          .worker = 3,
          .server = 1,
          .workers = 4,
          .servers = 2,
          .replicas = 2,
          .mode = 1,
          .reduction = 1,
          .is_double = true,
          .optimizers = 1,
          .settings = "optimizer sgd",
          .tensors = {{.name = "conv.weight", .shape = {64, 3, 7, 7}, .decay = true}, {.name = "scale"}},
          .variables = 2};
}

ApplyRequest application() {
  return {.from = kSender,
          .round = 300,
          .optimizer = 1,
          .learning_rate = 0.1,
          .inverse_loss_scale = 0.0078125,
          .step = -2,
          .found_inf = true,
          .hyperparameters = {0.9, 1e-4},
          .frozen = {1, 300}};
}

TEST(ServerWire, DecodesWhatItEncodes) {
  expect_same(registration());
  expect_same(RegisterReply{.token = 7, .begin = 16, .end = 1 << 20, .total = 1 << 22, .slots = {1, 2}});
  expect_same(AttendRequest{.from = kSender});
  expect_same(BeatRequest{.from = kSender,
                          .operation = "push",
                          .step = 17,
                          .begun = 18,
                          .done = 17,
                          .work = uint64_t{1} << 40,
                          .state = WorkerState::kWaitsForProcesses});
  expect_same(StartRequest{.from = kSender, .updates = 1000, .counts = {5, 0.25}});
  expect_same(application());
  expect_same(ReadRequest{.from = kSender, .round = 8, .target = 2, .begin = 1 << 20, .count = 7});
  expect_same(HoldRequest{.from = kSender, .held = true, .round = 8});
  expect_same(FailRequest{.from = kSender, .error = std::string("a\0b", 3)});
  expect_same(Progress{.updates = 12, .counts = {1, 2, 3}, .found_inf = true});
  expect_same(Progress{});
}

TEST(ServerWire, DataAreWhereTheyAre) {
  const std::string data(1000, 'x');
  const PushRequest push{.from = kSender, .round = 9, .begin = 4096};
  const std::string bytes = encode(push, data.size()) + data;
  for (const size_t piece : {bytes.size(), size_t{1}, size_t{37}}) {
    const IncomingMessage message = in_pieces(bytes, piece);
    Data found;
    EXPECT_EQ(decode<PushRequest>(message, found), push);
    ASSERT_EQ(found.bytes, data.size());
    std::string copy(found.bytes, ' ');
    message.copy(found.offset, copy.data(), found.bytes);
    EXPECT_EQ(copy, data);
  }
  const Data reply = decode_read_reply(received(encode_read_reply(3) + "abc"));
  EXPECT_EQ(reply.bytes, 3u);
}

// Returns what protoc makes of the bytes of a message by parameter_server.proto: an independent reader.
std::string by_protoc(const std::string& message, const std::string& bytes) {
  const core::TempDir folder;
  core::local_file_system().write_file_atomically(folder.path() + "/message", bytes);
  const std::string proto = std::string(TRAINYARD_SOURCE_DIR) + "/trainyard/parallel/servers";
  const std::string command = "protoc --proto_path=" + proto + " --decode=trainyard." + message +
                              " parameter_server.proto < " + folder.path() + "/message 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << text;
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

TEST(ServerWire, ProtocReadsTheSameMessages) {
  if (std::system("protoc --version > /dev/null 2>&1") != 0) GTEST_SKIP() << core::skip::kNeedsGrpc;
  EXPECT_EQ(
      by_protoc("RegisterRequest", encode(registration())),
      "version: 4 worker: 3 server: 1 workers: 4 servers: 2 replicas: 2 mode: 1 reduction: 1 is_double: true "
      "optimizers: 1 tensors { name: \"conv.weight\" shape: 64 shape: 3 shape: 7 shape: 7 decay: true } tensors { "
      "name: \"scale\" } settings: \"optimizer sgd\" variables: 2 ");
  EXPECT_EQ(by_protoc("ApplyRequest", encode(application())),
            "worker: 3 token: 18364758544493064720 round: 300 optimizer: 1 learning_rate: 0.1 inverse_loss_scale: "
            "0.0078125 step: -2 found_inf: true hyperparameters: 0.9 hyperparameters: 0.0001 frozen: 1 frozen: 300 ");
  EXPECT_EQ(by_protoc("PushRequest",
                      encode(PushRequest{.from = {.worker = 1, .token = 2}, .round = 9, .begin = 4}, 3) + "abc"),
            "worker: 1 token: 2 round: 9 begin: 4 data: \"abc\" ");
  EXPECT_EQ(by_protoc("WriteRequest",
                      encode(WriteRequest{.from = {.worker = 0, .token = 2}, .target = 5, .begin = 4}, 1) + "a"),
            "token: 2 target: 5 begin: 4 data: \"a\" ");
  EXPECT_EQ(by_protoc("ReadReply", encode_read_reply(2) + "hi"), "data: \"hi\" ");
  EXPECT_EQ(by_protoc("BeatRequest", encode(BeatRequest{.from = {.worker = 1, .token = 2},
                                                        .operation = "push",
                                                        .step = -1,
                                                        .begun = 4,
                                                        .done = 3,
                                                        .work = 300,
                                                        .state = WorkerState::kWaitsForServers})),
            "worker: 1 token: 2 operation: \"push\" step: -1 begun: 4 done: 3 work: 300 state: 1 ");
  const Sender from{.worker = 1, .token = 2};
  EXPECT_EQ(by_protoc("RegisterReply",
                      encode(RegisterReply{.token = 7, .begin = 16, .end = 32, .total = 64, .slots = {1, 2}})),
            "token: 7 begin: 16 end: 32 total: 64 slots: 1 slots: 2 ");
  EXPECT_EQ(by_protoc("AttendRequest", encode(AttendRequest{.from = from})), "worker: 1 token: 2 ");
  EXPECT_EQ(by_protoc("StartRequest", encode(StartRequest{.from = from, .updates = 1000, .counts = {5, 0.25}})),
            "worker: 1 token: 2 updates: 1000 counts: 5 counts: 0.25 ");
  EXPECT_EQ(
      by_protoc("ReadRequest", encode(ReadRequest{.from = from, .round = 8, .target = 3, .begin = 4, .count = 5})),
      "worker: 1 token: 2 round: 8 target: 3 begin: 4 count: 5 ");
  EXPECT_EQ(by_protoc("HoldRequest", encode(HoldRequest{.from = from, .held = true, .round = 8})),
            "worker: 1 token: 2 held: true round: 8 ");
  EXPECT_EQ(by_protoc("FailRequest", encode(FailRequest{.from = from, .error = "why"})),
            "worker: 1 token: 2 error: \"why\" ");
  EXPECT_EQ(by_protoc("Progress", encode(Progress{.updates = 12, .counts = {1, 0.5}, .found_inf = true})),
            "updates: 12 counts: 1 counts: 0.5 found_inf: true ");
}

template <typename Message>
std::string refusal(const std::string& bytes) {
  return core::message_of([&] { decode<Message>(received(bytes)); }, core::ErrorCode::kCorruptData);
}

TEST(ServerWire, RefusesAStateThatNoWorkerHas) {
  const std::string beat = encode(BeatRequest{.from = kSender, .state = WorkerState::kWaitsForProcesses});
  ASSERT_EQ(beat.back(), 2);
  EXPECT_THAT(refusal<BeatRequest>(beat.substr(0, beat.size() - 1) + '\3'),
              HasSubstr("a state that no worker has: BeatRequest, field 8"));
  EXPECT_THAT(refusal<BeatRequest>(encode(BeatRequest{.operation = std::string(kLongestOperation + 1, 'x')})),
              HasSubstr("at most 256"));
}

TEST(ServerWire, RefusesNumbersBeyondTheirBounds) {
  const auto shaped = [](std::vector<int64_t> shape) {
    RegisterRequest request = registration();
    request.tensors[0].shape = std::move(shape);
    return refusal<RegisterRequest>(encode(request));
  };
  const int64_t half = int64_t{1} << 32;
  EXPECT_THAT(shaped({half, half}), HasSubstr("more elements than can be served"));  // 2^64, which is 0
  EXPECT_THAT(shaped({half, half, 2}), HasSubstr("more elements"));
  EXPECT_THAT(shaped({int64_t{1} << 41}), HasSubstr("a dimension that no tensor has"));
  EXPECT_THAT(shaped({0}), HasSubstr("a dimension that no tensor has"));
  EXPECT_THAT(shaped({-1}), HasSubstr("a dimension that no tensor has"));
  EXPECT_THAT(shaped(std::vector<int64_t>(17, 1)), HasSubstr("more than 16 numbers"));
  // Each is allowed alone, and all together are not.
  RegisterRequest many = registration();
  many.tensors.assign(3, {.name = "w", .shape = {int64_t{1} << 39}});
  EXPECT_THAT(refusal<RegisterRequest>(encode(many)), HasSubstr("a model has more elements"));
  many.tensors.assign(kMostTensors + 1, {.name = "w", .shape = {1}});
  EXPECT_THAT(refusal<RegisterRequest>(encode(many)), HasSubstr("more tensors than models have"));
  many.tensors.assign(1, {.name = std::string(kLongestName + 1, 'n'), .shape = {1}});
  EXPECT_THAT(refusal<RegisterRequest>(encode(many)), HasSubstr("1025 bytes, at most 1024"));
  many.tensors.assign(1, {.name = "", .shape = {1}});
  EXPECT_THAT(refusal<RegisterRequest>(encode(many)), HasSubstr("no name"));
  RegisterRequest wordy = registration();
  wordy.settings.assign(kLongestSettings + 1, 's');
  EXPECT_THAT(refusal<RegisterRequest>(encode(wordy)), HasSubstr("1048577 bytes, at most 1048576"));
  ApplyRequest apply = application();
  apply.hyperparameters.assign(kMostNumbers + 1, 1.0);
  EXPECT_THAT(refusal<ApplyRequest>(encode(apply)), HasSubstr("bytes, at most"));
}

TEST(ServerWire, TakesTheLargestNumbersThatItAllows) {
  const auto shaped = [](std::vector<int64_t> shape) {
    RegisterRequest request = registration();
    request.tensors.assign(1, {.name = std::string(kLongestName, 'n'), .shape = std::move(shape)});
    return refusal<RegisterRequest>(encode(request));
  };
  EXPECT_EQ(shaped({int64_t{1} << 40}), "no error");
  EXPECT_EQ(shaped({1024, 1024, int64_t{1} << 20}), "no error");
  EXPECT_EQ(shaped(std::vector<int64_t>(16, 2)), "no error");
  RegisterRequest halves = registration();
  halves.tensors.assign(2, {.name = "w", .shape = {int64_t{1} << 39}});
  halves.settings.assign(kLongestSettings, 's');
  EXPECT_EQ(refusal<RegisterRequest>(encode(halves)), "no error");
  EXPECT_EQ(refusal<BeatRequest>(encode(BeatRequest{.operation = std::string(kLongestOperation, 'x')})), "no error");
  ApplyRequest apply = application();
  apply.hyperparameters.assign(kMostNumbers, 1.0);
  EXPECT_EQ(refusal<ApplyRequest>(encode(apply)), "no error");
}

// As proto3 has it, whatever a new message of this program begins with.
TEST(ServerWire, FieldsThatAreLeftOutAreZero) {
  EXPECT_EQ(decode<RegisterRequest>(received("")).version, 0U) << "a worker that says no version has none";
  EXPECT_EQ(decode<ApplyRequest>(received("")).inverse_loss_scale, 0);
  EXPECT_EQ(decode<BeatRequest>(received("")).step, 0);
}

// The numbers of parameter_server.proto.
TEST(ServerWire, TypesOfVariablesHaveNumbers) {
  EXPECT_EQ(variables_number(std::nullopt), 0U);
  EXPECT_EQ(variables_number(at::kHalf), 1U);
  EXPECT_EQ(variables_number(at::kBFloat16), 2U);
}

TEST(ServerWire, RefusesBytesThatAreNoMessage) {
  EXPECT_THAT(refusal<AttendRequest>("\xff"), HasSubstr("bytes are no message"));
  EXPECT_THAT(refusal<AttendRequest>(std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12)),
              HasSubstr("bytes are no message"));
  EXPECT_THAT(refusal<AttendRequest>(std::string("\x18\x01", 2)), HasSubstr("unknown field"));
  EXPECT_THAT(refusal<AttendRequest>(std::string("\x10\x01", 2)), HasSubstr("field of another type"));
  EXPECT_THAT(refusal<HoldRequest>(std::string("\x18\x02", 2)), HasSubstr("neither true nor false"));
  EXPECT_THAT(refusal<FailRequest>(std::string("\x1a\x7fx", 3)), HasSubstr("bytes are no message"));
}

TEST(ServerWire, RefusesDataThatAreNotComplete) {
  const auto pushed = [](const std::string& bytes) {
    Data data;
    return core::message_of([&] { decode<PushRequest>(received(bytes), data); }, core::ErrorCode::kCorruptData);
  };
  const PushRequest push{.from = kSender};
  EXPECT_THAT(pushed(encode(push, 4) + "abc"), HasSubstr("has 3 bytes of data and says 4"));
  EXPECT_THAT(pushed(encode(push, 2) + "abc"), HasSubstr("has 3 bytes of data and says 2"));
  EXPECT_THAT(pushed(encode(push, std::numeric_limits<size_t>::max()) + "abc"), HasSubstr("bytes of data and says"));
  EXPECT_THAT(pushed(encode(push, kChunkBytes + 1) + std::string(kChunkBytes + 1, 'x')), HasSubstr("bytes of data"));
  EXPECT_THAT(pushed(encode(AttendRequest{.from = kSender})), HasSubstr("no data"));
  EXPECT_THAT(pushed(""), HasSubstr("no data"));
  EXPECT_THAT(pushed("\xff"), HasSubstr("bytes are no message: "));
  EXPECT_THAT(pushed("\xff"), HasSubstr(": before the data"));
  EXPECT_THAT(pushed("\x21"
                     "abc"),
              HasSubstr("no data"))
      << "three bytes of a number of eight";
  EXPECT_THAT(pushed("\x20\x01" + encode(push, 1) + "a"), "no error");
  EXPECT_THAT(pushed("\x28\x01" + encode(push, 1) + "a"), HasSubstr("unknown field"));
}

TEST(ServerWire, ATensorHasAsManyElementsAsCanBeServed) {
  constexpr int64_t kMillion = int64_t{1} << 20;
  const auto count = [](const std::vector<int64_t>& shape) {
    return element_count({.name = "conv.weight", .shape = shape});
  };
  EXPECT_EQ(count({}), 1U);
  EXPECT_EQ(count({64, 3, 7, 5}), 6720U);
  EXPECT_EQ(count({kMillion, kMillion}), kMostElements);
  EXPECT_EQ(count({2, kMillion, kMillion / 2}), kMostElements);
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{kMillion, kMillion + 1},
                                                                             {kMillion * kMillion + 1},
                                                                             {3, kMillion, kMillion / 2},
                                                                             {kMillion * kMillion, 2},
                                                                             {kMillion, kMillion, kMillion, kMillion},
                                                                             {5, 0},
                                                                             {-1},
                                                                             {-1, -1}}) {
    EXPECT_EQ(core::message_of([&] { count(shape); }, core::ErrorCode::kCorruptData),
              "a tensor has more elements than can be served: conv.weight")
        << ::testing::PrintToString(shape);
  }
}

}  // namespace
}  // namespace trainyard::parallel::wire::wire_test
