// The messages of parameter_server.proto, and their bytes. What is decoded has the right form, and sizes and counts
// within these bounds, before any memory is taken for it; whether it fits the training is for the server to say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/parallel/servers/transport.h"

namespace trainyard::parallel::wire {

inline constexpr uint64_t kVersion = 4;
inline constexpr size_t kMostTensors = size_t{1} << 16;
inline constexpr size_t kMostDimensions = 16;
inline constexpr size_t kLongestName = 1024;
inline constexpr size_t kLongestOperation = 256;
inline constexpr size_t kLongestSettings = size_t{1} << 20;
inline constexpr size_t kMostNumbers = 256;  // of hyperparameters, optimizers and slots
inline constexpr uint64_t kMostElements = uint64_t{1} << 40;
// Most bytes of elements in one message: with its head it is below gRPC's limit.
inline constexpr size_t kChunkBytes = size_t{2} << 20;

struct Sender {
  uint64_t worker = 0;
  uint64_t token = 0;
  bool operator==(const Sender&) const = default;
};

struct Tensor {
  std::string name{};
  std::vector<int64_t> shape{};
  bool decay = false;
  bool operator==(const Tensor&) const = default;
};
// Returns the number of elements. Throws kCorruptData for one that is 0 or above kMostElements.
uint64_t element_count(const Tensor& tensor);

struct RegisterRequest {
  uint64_t version = kVersion, worker = 0, server = 0;
  uint64_t workers = 0, servers = 0, replicas = 0, mode = 0, reduction = 0;
  bool is_double = false;
  uint64_t optimizers = 0;
  std::string settings{};  // optimizer_settings() of all of them
  std::vector<Tensor> tensors{};
  uint64_t variables = 0;  // variables_number() of ClusterOptions::variables_as
  bool operator==(const RegisterRequest&) const = default;
};
// Returns the number by which messages name the type that variables are kept as: 0 none, 1 Half, 2 BFloat16.
[[nodiscard]] uint64_t variables_number(const std::optional<at::ScalarType>& type);
struct RegisterReply {
  uint64_t token = 0, begin = 0, end = 0, total = 0;
  std::vector<uint64_t> slots{};
  bool operator==(const RegisterReply&) const = default;
};
struct AttendRequest {
  Sender from{};
  bool operator==(const AttendRequest&) const = default;
};
// What the threads that do a worker's work do: one of them waits for an answer of a server, or for the other processes
// of its group; or none waits for either. A thread that is held behind the end of its wait does not wait.
enum class WorkerState : uint8_t { kWorks, kWaitsForServers, kWaitsForProcesses };
struct BeatRequest {
  Sender from{};
  std::string operation{};
  int64_t step = -1;
  uint64_t begun = 0, done = 0;
  uint64_t work = 0;  // changes while the worker makes progress
  WorkerState state = WorkerState::kWorks;
  bool operator==(const BeatRequest&) const = default;
};
struct StartRequest {
  Sender from{};
  uint64_t updates = 0;
  std::vector<double> counts{};
  bool operator==(const StartRequest&) const = default;
};
// What a range of elements is of.
inline constexpr uint64_t kValues = 0, kStagedValues = 1, kFirstSlot = 2;
struct WriteRequest {
  Sender from{};
  uint64_t target = kValues, begin = 0;
  bool operator==(const WriteRequest&) const = default;
};
struct PushRequest {
  Sender from{};
  uint64_t round = 0, begin = 0;
  bool operator==(const PushRequest&) const = default;
};
struct ApplyRequest {
  Sender from{};
  uint64_t round = 0, optimizer = 0;
  double learning_rate = 0, inverse_loss_scale = 1;
  int64_t step = 0;
  bool found_inf = false;
  std::vector<double> hyperparameters{};
  std::vector<uint64_t> frozen{};
  bool operator==(const ApplyRequest&) const = default;
};
struct ReadRequest {
  Sender from{};
  uint64_t round = 0, target = kValues, begin = 0, count = 0;
  bool operator==(const ReadRequest&) const = default;
};
struct HoldRequest {
  Sender from{};
  bool held = false;
  uint64_t round = 0;
  bool operator==(const HoldRequest&) const = default;
};
struct FailRequest {
  Sender from{};
  std::string error{};
  bool operator==(const FailRequest&) const = default;
};
struct Progress {
  uint64_t updates = 0;
  std::vector<double> counts{};
  bool found_inf = false;  // behind a push: its update was left out
  bool operator==(const Progress&) const = default;
};

// Returns the bytes of a message; of one with data (WriteRequest, PushRequest, ReadReply) those before the data, which
// `bytes` counts.
std::string encode(const RegisterRequest& message);
std::string encode(const RegisterReply& message);
std::string encode(const AttendRequest& message);
std::string encode(const BeatRequest& message);
std::string encode(const StartRequest& message);
std::string encode(const ApplyRequest& message);
std::string encode(const ReadRequest& message);
std::string encode(const HoldRequest& message);
std::string encode(const FailRequest& message);
std::string encode(const Progress& message);
std::string encode(const WriteRequest& message, size_t bytes);
std::string encode(const PushRequest& message, size_t bytes);
std::string encode_read_reply(size_t bytes);

// Where the data of a message are.
struct Data {
  size_t offset = 0, bytes = 0;
};

// Decode a message. All throw kCorruptData: for bytes that are none, fields that are unknown, and numbers out of
// bounds. `Message` is one of those above without data.
template <typename Message>
Message decode(const IncomingMessage& message);
// Decodes what is before the data, which must be the last field, complete and at most kChunkBytes.
template <typename Message>
Message decode(const IncomingMessage& message, Data& data);
Data decode_read_reply(const IncomingMessage& message);

}  // namespace trainyard::parallel::wire
