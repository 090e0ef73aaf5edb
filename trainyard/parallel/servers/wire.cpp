#include "trainyard/parallel/servers/wire.h"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>

namespace trainyard::parallel::wire {

using core::Error;
using core::ErrorCode;
using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::pbf_writer;

namespace {

constexpr uint32_t kDataField = 15;
constexpr size_t kLongestHead = 256;  // of messages with data
constexpr size_t kLongestError = size_t{16} << 10;

[[noreturn]] void refuse(std::string problem, std::string where) {
  throw Error(ErrorCode::kCorruptData, {.problem = std::move(problem), .where = std::move(where)});
}

// For errors.
template <typename Message>
constexpr const char* kName = nullptr;
template <>
constexpr const char* kName<RegisterRequest> = "RegisterRequest";
template <>
constexpr const char* kName<RegisterReply> = "RegisterReply";
template <>
constexpr const char* kName<AttendRequest> = "AttendRequest";
template <>
constexpr const char* kName<BeatRequest> = "BeatRequest";
template <>
constexpr const char* kName<StartRequest> = "StartRequest";
template <>
constexpr const char* kName<ApplyRequest> = "ApplyRequest";
template <>
constexpr const char* kName<ReadRequest> = "ReadRequest";
template <>
constexpr const char* kName<HoldRequest> = "HoldRequest";
template <>
constexpr const char* kName<FailRequest> = "FailRequest";
template <>
constexpr const char* kName<Progress> = "Progress";
template <>
constexpr const char* kName<WriteRequest> = "WriteRequest";
template <>
constexpr const char* kName<PushRequest> = "PushRequest";

template <typename T, typename Message>
concept Is = std::is_same_v<std::remove_const_t<T>, Message>;

// The fields of each message, once for those who read and who write: each call names a field's number and its place,
// and its bounds where it has some. Such a visitor of fields is FieldWriter or FieldReader.
void visit(auto& fields, Is<Sender> auto& message) {
  fields.number(1, message.worker);
  fields.fixed(2, message.token);
}

void visit(auto& fields, Is<Tensor> auto& message) {
  fields.bytes(1, message.name, kLongestName);
  fields.shape(2, message.shape);
  fields.boolean(3, message.decay);
}

void visit(auto& fields, Is<RegisterRequest> auto& message) {
  fields.number(1, message.version);
  fields.number(2, message.worker);
  fields.number(3, message.server);
  fields.number(4, message.workers);
  fields.number(5, message.servers);
  fields.number(6, message.replicas);
  fields.number(7, message.mode);
  fields.number(8, message.reduction);
  fields.boolean(9, message.is_double);
  fields.number(10, message.optimizers);
  fields.tensors(11, message.tensors);
  fields.bytes(12, message.settings, kLongestSettings);
  fields.number(13, message.variables);
}

void visit(auto& fields, Is<RegisterReply> auto& message) {
  fields.fixed(1, message.token);
  fields.number(2, message.begin);
  fields.number(3, message.end);
  fields.number(4, message.total);
  fields.numbers(5, message.slots, kMostNumbers);
}

void visit(auto& fields, Is<AttendRequest> auto& message) {
  visit(fields, message.from);
}

void visit(auto& fields, Is<BeatRequest> auto& message) {
  visit(fields, message.from);
  fields.bytes(3, message.operation, kLongestOperation);
  fields.signed_number(4, message.step);
  fields.number(5, message.begun);
  fields.number(6, message.done);
  fields.number(7, message.work);
  fields.state(8, message.state);
}

void visit(auto& fields, Is<StartRequest> auto& message) {
  visit(fields, message.from);
  fields.number(3, message.updates);
  fields.reals(4, message.counts, kMostNumbers);
}

void visit(auto& fields, Is<WriteRequest> auto& message) {
  visit(fields, message.from);
  fields.number(3, message.target);
  fields.number(4, message.begin);
}

void visit(auto& fields, Is<PushRequest> auto& message) {
  visit(fields, message.from);
  fields.number(3, message.round);
  fields.number(4, message.begin);
}

void visit(auto& fields, Is<ApplyRequest> auto& message) {
  visit(fields, message.from);
  fields.number(3, message.round);
  fields.number(4, message.optimizer);
  fields.real(5, message.learning_rate);
  fields.real(6, message.inverse_loss_scale);
  fields.signed_number(7, message.step);
  fields.boolean(8, message.found_inf);
  fields.reals(9, message.hyperparameters, kMostNumbers);
  fields.numbers(10, message.frozen, kMostTensors);
}

void visit(auto& fields, Is<ReadRequest> auto& message) {
  visit(fields, message.from);
  fields.number(3, message.round);
  fields.number(4, message.target);
  fields.number(5, message.begin);
  fields.number(6, message.count);
}

void visit(auto& fields, Is<HoldRequest> auto& message) {
  visit(fields, message.from);
  fields.boolean(3, message.held);
  fields.number(4, message.round);
}

void visit(auto& fields, Is<FailRequest> auto& message) {
  visit(fields, message.from);
  fields.bytes(3, message.error, kLongestError);
}

void visit(auto& fields, Is<Progress> auto& message) {
  fields.number(1, message.updates);
  fields.reals(2, message.counts, kMostNumbers);
  fields.boolean(3, message.found_inf);
}

// Writes all fields of a message.
class FieldWriter {
 public:
  explicit FieldWriter(pbf_writer writer) : writer_(std::move(writer)) {}

  void number(uint32_t field, uint64_t value) { writer_.add_uint64(field, value); }
  void signed_number(uint32_t field, int64_t value) { writer_.add_sint64(field, value); }
  void fixed(uint32_t field, uint64_t value) { writer_.add_fixed64(field, value); }
  void state(uint32_t field, WorkerState value) { writer_.add_uint64(field, static_cast<uint64_t>(value)); }
  void boolean(uint32_t field, bool value) { writer_.add_bool(field, value); }
  void real(uint32_t field, double value) { writer_.add_double(field, value); }
  void bytes(uint32_t field, const std::string& value, size_t /*most*/) { writer_.add_bytes(field, value); }
  void numbers(uint32_t field, const std::vector<uint64_t>& values, size_t /*most*/) {
    writer_.add_packed_uint64(field, values.begin(), values.end());
  }
  void reals(uint32_t field, const std::vector<double>& values, size_t /*most*/) {
    writer_.add_packed_double(field, values.begin(), values.end());
  }
  void shape(uint32_t field, const std::vector<int64_t>& shape) {
    writer_.add_packed_uint64(field, shape.begin(), shape.end());
  }
  void tensors(uint32_t field, const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      FieldWriter inner(pbf_writer(writer_, field));
      visit(inner, tensor);
    }
  }

 private:
  pbf_writer writer_;
};

template <typename Message>
std::string written(const Message& message) {
  std::string bytes;
  FieldWriter fields{pbf_writer(bytes)};
  visit(fields, message);
  return bytes;
}

void check(const auto& /*message*/) {}
void check(const Tensor& tensor);
void check(const RegisterRequest& message);

// Reads a message: read() takes each field of its bytes to the place that visit() names for it, and refuses one of
// another type, beyond its bounds, or that the message does not have.
class FieldReader {
 public:
  FieldReader(std::string_view bytes, const char* message) : reader_(bytes.data(), bytes.size()), message_(message) {}

  template <typename Message>
  static void read(std::string_view bytes, const char* name, Message& message) {
    try {
      FieldReader fields(bytes, name);
      while (fields.reader_.next()) {
        fields.known_ = false;
        visit(fields, message);
        if (!fields.known_) fields.refuse_field("a message has an unknown field");
      }
    } catch (const protozero::exception& error) {
      refuse(fmt::format("bytes are no message: {}", error.what()), name);
    }
    check(message);
  }

  void number(uint32_t field, uint64_t& value) {
    if (is(field, pbf_wire_type::varint)) value = reader_.get_uint64();
  }
  void signed_number(uint32_t field, int64_t& value) {
    if (is(field, pbf_wire_type::varint)) value = reader_.get_sint64();
  }
  void fixed(uint32_t field, uint64_t& value) {
    if (is(field, pbf_wire_type::fixed64)) value = reader_.get_fixed64();
  }
  void boolean(uint32_t field, bool& value) {
    if (!is(field, pbf_wire_type::varint)) return;
    const uint64_t read = reader_.get_uint64();
    if (read > 1) refuse_field("a message has a value that is neither true nor false");
    value = read == 1;
  }
  void state(uint32_t field, WorkerState& value) {
    if (!is(field, pbf_wire_type::varint)) return;
    const uint64_t read = reader_.get_uint64();
    if (read > static_cast<uint64_t>(WorkerState::kWaitsForProcesses)) {
      refuse_field("a message has a state that no worker has");
    }
    value = static_cast<WorkerState>(read);
  }
  void real(uint32_t field, double& value) {
    if (is(field, pbf_wire_type::fixed64)) value = reader_.get_double();
  }
  void bytes(uint32_t field, std::string& value, size_t most) {
    if (is(field, pbf_wire_type::length_delimited)) value = view(most);
  }
  void numbers(uint32_t field, std::vector<uint64_t>& values, size_t most) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    values.clear();
    append_numbers(values, most);
  }
  void reals(uint32_t field, std::vector<double>& values, size_t most) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    const std::string_view packed = view(most * sizeof(double));
    if (packed.size() % sizeof(double) != 0) refuse_field("a message has a part of a number");
    values.resize(packed.size() / sizeof(double));
    std::copy(packed.begin(), packed.end(), reinterpret_cast<char*>(values.data()));
  }
  void shape(uint32_t field, std::vector<int64_t>& shape) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    shape.clear();
    append_numbers(shape, kMostDimensions);
    if (std::any_of(shape.begin(), shape.end(),
                    [](int64_t size) { return size <= 0 || static_cast<uint64_t>(size) > kMostElements; })) {
      refuse_field("a message has a dimension that no tensor has");
    }
  }
  void tensors(uint32_t field, std::vector<Tensor>& tensors) {
    if (!is(field, pbf_wire_type::length_delimited)) return;
    if (tensors.size() == kMostTensors) refuse_field("a message has more tensors than models have");
    read(view(kLongestServerMessage), "Tensor", tensors.emplace_back());
  }

 private:
  // Returns whether the field that is read is this one, which must be of this type then.
  bool is(uint32_t field, pbf_wire_type type) {
    if (reader_.tag() != field) return false;
    known_ = true;
    if (reader_.wire_type() != type) refuse_field("a message has a field of another type");
    return true;
  }
  std::string_view view(size_t most) {
    const protozero::data_view view = reader_.get_view();
    if (view.size() > most) {
      refuse_field(fmt::format("a message has {} bytes, at most {} are allowed,", view.size(), most));
    }
    return {view.data(), view.size()};
  }
  template <typename Number>
  void append_numbers(std::vector<Number>& values, size_t most) {
    constexpr size_t kLongestVarint = 10;
    const std::string_view packed = view(most * kLongestVarint);
    const char* at = packed.data();
    const char* const end = at + packed.size();
    while (at != end) {
      if (values.size() == most) refuse_field(fmt::format("a message has more than {} numbers", most));
      values.push_back(static_cast<Number>(protozero::decode_varint(&at, end)));
    }
  }
  [[noreturn]] void refuse_field(std::string problem) const {
    refuse(std::move(problem), fmt::format("{}, field {}", message_, static_cast<uint32_t>(reader_.tag())));
  }

  pbf_reader reader_;
  const char* message_;
  bool known_ = false;
};

void check(const Tensor& tensor) {
  if (tensor.name.empty()) refuse("a tensor has no name", "Tensor");
  element_count(tensor);
}

void check(const RegisterRequest& message) {
  uint64_t elements = 0;  // of each at most 2^40, of at most 2^16 of them: below 2^57
  for (const Tensor& tensor : message.tensors) elements += element_count(tensor);
  if (elements > kMostElements) refuse("a model has more elements than can be served", "RegisterRequest");
}

// Returns the bytes before the data, and where these are.
std::string split(const IncomingMessage& message, Data& data) {
  std::string head = message.prefix(kLongestHead);
  const char* at = head.data();
  const char* const end = at + head.size();
  try {
    while (at != end) {
      const char* const field = at;
      const uint64_t tag = protozero::decode_varint(&at, end);
      const auto type = static_cast<pbf_wire_type>(tag & 7U);
      if (type == pbf_wire_type::varint) {
        protozero::decode_varint(&at, end);
      } else if (type == pbf_wire_type::fixed64) {
        if (end - at < 8) break;
        at += 8;
      } else if (type == pbf_wire_type::length_delimited && tag >> 3U == kDataField) {
        const uint64_t bytes = protozero::decode_varint(&at, end);
        const auto offset = static_cast<size_t>(at - head.data());
        if (bytes > kChunkBytes || message.size() - offset != bytes) {
          refuse(fmt::format("a message has {} bytes of data and says {}", message.size() - offset, bytes), "data");
        }
        data = {.offset = offset, .bytes = static_cast<size_t>(bytes)};
        head.resize(static_cast<size_t>(field - head.data()));
        return head;
      } else {
        break;
      }
    }
  } catch (const protozero::exception& error) {
    refuse(fmt::format("bytes are no message: {}", error.what()), "before the data");
  }
  refuse("a message has no data", "data");
}

void append_data_header(std::string& head, size_t bytes) {
  protozero::write_varint(std::back_inserter(head),
                          kDataField << 3U | static_cast<uint32_t>(pbf_wire_type::length_delimited));
  protozero::write_varint(std::back_inserter(head), bytes);
}

template <typename Message>
std::string written_before(const Message& message, size_t bytes) {
  std::string head = written(message);
  append_data_header(head, bytes);
  return head;
}

// Returns a message with the values that proto3 means by fields that are left out.
template <typename Message>
Message with_defaults() {
  Message message;
  if constexpr (requires { message.version; }) message.version = 0;
  if constexpr (requires { message.inverse_loss_scale; }) message.inverse_loss_scale = 0;
  if constexpr (requires { message.operation; }) message.step = 0;
  return message;
}

}  // namespace

uint64_t variables_number(const std::optional<at::ScalarType>& type) {
  if (!type) return 0;
  return *type == at::kHalf ? 1 : 2;
}

uint64_t element_count(const Tensor& tensor) {
  uint64_t count = 1;
  for (const int64_t size : tensor.shape) {
    if (size <= 0 || static_cast<uint64_t>(size) > kMostElements / count) {
      refuse("a tensor has more elements than can be served", tensor.name);
    }
    count *= static_cast<uint64_t>(size);
  }
  return count;
}

std::string encode(const RegisterRequest& message) {
  return written(message);
}

std::string encode(const RegisterReply& message) {
  return written(message);
}

std::string encode(const AttendRequest& message) {
  return written(message);
}

std::string encode(const BeatRequest& message) {
  return written(message);
}

std::string encode(const StartRequest& message) {
  return written(message);
}

std::string encode(const ApplyRequest& message) {
  return written(message);
}

std::string encode(const ReadRequest& message) {
  return written(message);
}

std::string encode(const HoldRequest& message) {
  return written(message);
}

std::string encode(const FailRequest& message) {
  return written(message);
}

std::string encode(const Progress& message) {
  return written(message);
}

std::string encode(const WriteRequest& message, size_t bytes) {
  return written_before(message, bytes);
}

std::string encode(const PushRequest& message, size_t bytes) {
  return written_before(message, bytes);
}

std::string encode_read_reply(size_t bytes) {
  std::string head;
  append_data_header(head, bytes);
  return head;
}

template <typename Message>
Message decode(const IncomingMessage& message) {
  auto decoded = with_defaults<Message>();
  FieldReader::read(message.prefix(message.size()), kName<Message>, decoded);
  return decoded;
}

template <typename Message>
Message decode(const IncomingMessage& message, Data& data) {
  auto decoded = with_defaults<Message>();
  FieldReader::read(split(message, data), kName<Message>, decoded);
  return decoded;
}

Data decode_read_reply(const IncomingMessage& message) {
  Data data;
  if (!split(message, data).empty()) refuse("a message has an unknown field", "ReadReply");
  return data;
}

template RegisterRequest decode(const IncomingMessage&);
template RegisterReply decode(const IncomingMessage&);
template AttendRequest decode(const IncomingMessage&);
template BeatRequest decode(const IncomingMessage&);
template StartRequest decode(const IncomingMessage&);
template ApplyRequest decode(const IncomingMessage&);
template ReadRequest decode(const IncomingMessage&);
template HoldRequest decode(const IncomingMessage&);
template FailRequest decode(const IncomingMessage&);
template Progress decode(const IncomingMessage&);
template WriteRequest decode(const IncomingMessage&, Data&);
template PushRequest decode(const IncomingMessage&, Data&);

}  // namespace trainyard::parallel::wire
