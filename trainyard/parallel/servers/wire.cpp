#include "trainyard/parallel/servers/wire.h"

#include <algorithm>
#include <cmath>

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
constexpr size_t kLongestOperation = 256, kLongestError = size_t{16} << 10;

[[noreturn]] void refuse(std::string problem, std::string where) {
  throw Error(ErrorCode::kCorruptData, {.problem = std::move(problem), .where = std::move(where)});
}

// One field at a time, each of the type that is asked for.
class FieldReader {
 public:
  FieldReader(std::string_view bytes, const char* message) : reader_(bytes.data(), bytes.size()), message_(message) {}

  bool next() { return reader_.next(); }
  uint32_t field() const { return reader_.tag(); }
  uint64_t number() {
    require(pbf_wire_type::varint);
    return reader_.get_uint64();
  }
  bool boolean() {
    const uint64_t value = number();
    if (value > 1) invalid("a value that is neither true nor false");
    return value == 1;
  }
  int64_t signed_number() {
    require(pbf_wire_type::varint);
    return reader_.get_sint64();
  }
  uint64_t fixed() {
    require(pbf_wire_type::fixed64);
    return reader_.get_fixed64();
  }
  double real() {
    require(pbf_wire_type::fixed64);
    return reader_.get_double();
  }
  std::string_view bytes(size_t most) {
    require(pbf_wire_type::length_delimited);
    const protozero::data_view view = reader_.get_view();
    if (view.size() > most) invalid(fmt::format("{} bytes, at most {} are allowed,", view.size(), most));
    return {view.data(), view.size()};
  }
  std::vector<uint64_t> numbers(size_t most) {
    const std::string_view packed = bytes(most * 10);
    std::vector<uint64_t> result;
    const char* at = packed.data();
    while (at != packed.data() + packed.size()) {
      if (result.size() == most) invalid(fmt::format("more than {} numbers", most));
      result.push_back(protozero::decode_varint(&at, packed.data() + packed.size()));
    }
    return result;
  }
  std::vector<double> reals(size_t most) {
    const std::string_view packed = bytes(most * sizeof(double));
    if (packed.size() % sizeof(double) != 0) invalid("a part of a number");
    std::vector<double> result(packed.size() / sizeof(double));
    std::copy(packed.begin(), packed.end(), reinterpret_cast<char*>(result.data()));
    return result;
  }
  // Refuses a field that the message does not have.
  [[noreturn]] void unknown() const { refuse("a message has an unknown field", where()); }
  [[noreturn]] void invalid(std::string_view what) const { refuse(fmt::format("a message has {}", what), where()); }

 private:
  void require(pbf_wire_type type) const {
    if (reader_.wire_type() != type) refuse("a message has a field of another type", where());
  }
  std::string where() const { return fmt::format("{}, field {}", message_, static_cast<uint32_t>(reader_.tag())); }

  pbf_reader reader_;
  const char* message_;
};

// Reads one message. `read` gets each field.
template <typename Read>
void read_fields(std::string_view bytes, const char* message, Read read) {
  try {
    FieldReader reader(bytes, message);
    while (reader.next()) read(reader);
  } catch (const protozero::exception& error) {
    refuse(fmt::format("bytes are no message: {}", error.what()), message);
  }
}

bool read_sender(FieldReader& reader, Sender& from) {
  switch (reader.field()) {
    case 1:
      from.worker = reader.number();
      return true;
    case 2:
      from.token = reader.fixed();
      return true;
    default:
      return false;
  }
}

void write_sender(pbf_writer& writer, const Sender& from) {
  writer.add_uint64(1, from.worker);
  writer.add_fixed64(2, from.token);
}

void write_reals(pbf_writer& writer, uint32_t field, const std::vector<double>& numbers) {
  writer.add_packed_double(field, numbers.begin(), numbers.end());
}

void read_message(std::string_view bytes, Tensor& tensor) {
  read_fields(bytes, "Tensor", [&](FieldReader& reader) {
    switch (reader.field()) {
      case 1:
        tensor.name = reader.bytes(kLongestName);
        break;
      case 2:
        for (const uint64_t size : reader.numbers(kMostDimensions)) {
          if (size == 0 || size > kMostElements) reader.invalid("a dimension that no tensor has");
          tensor.shape.push_back(static_cast<int64_t>(size));
        }
        if (tensor.shape.size() > kMostDimensions) reader.invalid("more dimensions than tensors have");
        break;
      case 3:
        tensor.decay = reader.boolean();
        break;
      default:
        reader.unknown();
    }
  });
  if (tensor.name.empty()) refuse("a tensor has no name", "Tensor");
  element_count(tensor);
}

void read_message(std::string_view bytes, RegisterRequest& message) {
  uint64_t elements = 0;
  read_fields(bytes, "RegisterRequest", [&](FieldReader& reader) {
    switch (reader.field()) {
      case 1:
        message.version = reader.number();
        break;
      case 2:
        message.worker = reader.number();
        break;
      case 3:
        message.server = reader.number();
        break;
      case 4:
        message.workers = reader.number();
        break;
      case 5:
        message.servers = reader.number();
        break;
      case 6:
        message.replicas = reader.number();
        break;
      case 7:
        message.mode = reader.number();
        break;
      case 8:
        message.reduction = reader.number();
        break;
      case 9:
        message.is_double = reader.boolean();
        break;
      case 10:
        message.optimizers = reader.number();
        break;
      case 11: {
        if (message.tensors.size() == kMostTensors) reader.invalid("more tensors than models have");
        Tensor tensor;
        read_message(reader.bytes(kLongestServerMessage), tensor);
        elements += element_count(tensor);  // each at most 2^40, at most 2^16 of them: below 2^57
        message.tensors.push_back(std::move(tensor));
        break;
      }
      default:
        reader.unknown();
    }
  });
  if (elements > kMostElements) refuse("a model has more elements than can be served", "RegisterRequest");
}

void read_message(std::string_view bytes, RegisterReply& message) {
  read_fields(bytes, "RegisterReply", [&](FieldReader& reader) {
    switch (reader.field()) {
      case 1:
        message.token = reader.fixed();
        break;
      case 2:
        message.begin = reader.number();
        break;
      case 3:
        message.end = reader.number();
        break;
      case 4:
        message.total = reader.number();
        break;
      case 5:
        message.slots = reader.numbers(kMostNumbers);
        break;
      default:
        reader.unknown();
    }
  });
}

void read_message(std::string_view bytes, AttendRequest& message) {
  read_fields(bytes, "AttendRequest", [&](FieldReader& reader) {
    if (!read_sender(reader, message.from)) reader.unknown();
  });
}

void read_message(std::string_view bytes, BeatRequest& message) {
  read_fields(bytes, "BeatRequest", [&](FieldReader& reader) {
    if (read_sender(reader, message.from)) return;
    switch (reader.field()) {
      case 3:
        message.operation = reader.bytes(kLongestOperation);
        break;
      case 4:
        message.step = reader.signed_number();
        break;
      case 5:
        message.begun = reader.number();
        break;
      case 6:
        message.done = reader.number();
        break;
      default:
        reader.unknown();
    }
  });
}

void read_message(std::string_view bytes, StartRequest& message) {
  read_fields(bytes, "StartRequest", [&](FieldReader& reader) {
    if (read_sender(reader, message.from)) return;
    switch (reader.field()) {
      case 3:
        message.updates = reader.number();
        break;
      case 4:
        message.counts = reader.reals(kMostNumbers);
        break;
      default:
        reader.unknown();
    }
  });
}

void read_message(std::string_view bytes, WriteRequest& message) {
  read_fields(bytes, "WriteRequest", [&](FieldReader& reader) {
    if (read_sender(reader, message.from)) return;
    switch (reader.field()) {
      case 3:
        message.target = reader.number();
        break;
      case 4:
        message.begin = reader.number();
        break;
      default:
        reader.unknown();
    }
  });
}

void read_message(std::string_view bytes, PushRequest& message) {
  read_fields(bytes, "PushRequest", [&](FieldReader& reader) {
    if (read_sender(reader, message.from)) return;
    switch (reader.field()) {
      case 3:
        message.round = reader.number();
        break;
      case 4:
        message.begin = reader.number();
        break;
      default:
        reader.unknown();
    }
  });
}

void read_message(std::string_view bytes, ApplyRequest& message) {
  read_fields(bytes, "ApplyRequest", [&](FieldReader& reader) {
    if (read_sender(reader, message.from)) return;
    switch (reader.field()) {
      case 3:
        message.round = reader.number();
        break;
      case 4:
        message.optimizer = reader.number();
        break;
      case 5:
        message.learning_rate = reader.real();
        break;
      case 6:
        message.inverse_loss_scale = reader.real();
        break;
      case 7:
        message.step = reader.signed_number();
        break;
      case 8:
        message.found_inf = reader.boolean();
        break;
      case 9:
        message.hyperparameters = reader.reals(kMostNumbers);
        break;
      case 10:
        message.frozen = reader.numbers(kMostTensors);
        break;
      default:
        reader.unknown();
    }
  });
}

void read_message(std::string_view bytes, ReadRequest& message) {
  read_fields(bytes, "ReadRequest", [&](FieldReader& reader) {
    if (read_sender(reader, message.from)) return;
    switch (reader.field()) {
      case 3:
        message.round = reader.number();
        break;
      case 4:
        message.target = reader.number();
        break;
      case 5:
        message.begin = reader.number();
        break;
      case 6:
        message.count = reader.number();
        break;
      default:
        reader.unknown();
    }
  });
}

void read_message(std::string_view bytes, HoldRequest& message) {
  read_fields(bytes, "HoldRequest", [&](FieldReader& reader) {
    if (read_sender(reader, message.from)) return;
    switch (reader.field()) {
      case 3:
        message.held = reader.boolean();
        break;
      case 4:
        message.round = reader.number();
        break;
      default:
        reader.unknown();
    }
  });
}

void read_message(std::string_view bytes, FailRequest& message) {
  read_fields(bytes, "FailRequest", [&](FieldReader& reader) {
    if (read_sender(reader, message.from)) return;
    if (reader.field() != 3) reader.unknown();
    message.error = reader.bytes(kLongestError);
  });
}

void read_message(std::string_view bytes, Progress& message) {
  read_fields(bytes, "Progress", [&](FieldReader& reader) {
    switch (reader.field()) {
      case 1:
        message.updates = reader.number();
        break;
      case 2:
        message.counts = reader.reals(kMostNumbers);
        break;
      default:
        reader.unknown();
    }
  });
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

template <typename Write>
std::string written(Write write) {
  std::string bytes;
  pbf_writer writer(bytes);
  write(writer);
  return bytes;
}

void append_data_header(std::string& head, size_t bytes) {
  protozero::write_varint(std::back_inserter(head),
                          kDataField << 3U | static_cast<uint32_t>(pbf_wire_type::length_delimited));
  protozero::write_varint(std::back_inserter(head), bytes);
}

}  // namespace

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
  return written([&](pbf_writer& writer) {
    writer.add_uint64(1, message.version);
    writer.add_uint64(2, message.worker);
    writer.add_uint64(3, message.server);
    writer.add_uint64(4, message.workers);
    writer.add_uint64(5, message.servers);
    writer.add_uint64(6, message.replicas);
    writer.add_uint64(7, message.mode);
    writer.add_uint64(8, message.reduction);
    writer.add_bool(9, message.is_double);
    writer.add_uint64(10, message.optimizers);
    for (const Tensor& tensor : message.tensors) {
      pbf_writer inner(writer, 11);
      inner.add_bytes(1, tensor.name);
      inner.add_packed_uint64(2, tensor.shape.begin(), tensor.shape.end());
      inner.add_bool(3, tensor.decay);
    }
  });
}

std::string encode(const RegisterReply& message) {
  return written([&](pbf_writer& writer) {
    writer.add_fixed64(1, message.token);
    writer.add_uint64(2, message.begin);
    writer.add_uint64(3, message.end);
    writer.add_uint64(4, message.total);
    writer.add_packed_uint64(5, message.slots.begin(), message.slots.end());
  });
}

std::string encode(const AttendRequest& message) {
  return written([&](pbf_writer& writer) { write_sender(writer, message.from); });
}

std::string encode(const BeatRequest& message) {
  return written([&](pbf_writer& writer) {
    write_sender(writer, message.from);
    writer.add_bytes(3, message.operation);
    writer.add_sint64(4, message.step);
    writer.add_uint64(5, message.begun);
    writer.add_uint64(6, message.done);
  });
}

std::string encode(const StartRequest& message) {
  return written([&](pbf_writer& writer) {
    write_sender(writer, message.from);
    writer.add_uint64(3, message.updates);
    write_reals(writer, 4, message.counts);
  });
}

std::string encode(const ApplyRequest& message) {
  return written([&](pbf_writer& writer) {
    write_sender(writer, message.from);
    writer.add_uint64(3, message.round);
    writer.add_uint64(4, message.optimizer);
    writer.add_double(5, message.learning_rate);
    writer.add_double(6, message.inverse_loss_scale);
    writer.add_sint64(7, message.step);
    writer.add_bool(8, message.found_inf);
    write_reals(writer, 9, message.hyperparameters);
    writer.add_packed_uint64(10, message.frozen.begin(), message.frozen.end());
  });
}

std::string encode(const ReadRequest& message) {
  return written([&](pbf_writer& writer) {
    write_sender(writer, message.from);
    writer.add_uint64(3, message.round);
    writer.add_uint64(4, message.target);
    writer.add_uint64(5, message.begin);
    writer.add_uint64(6, message.count);
  });
}

std::string encode(const HoldRequest& message) {
  return written([&](pbf_writer& writer) {
    write_sender(writer, message.from);
    writer.add_bool(3, message.held);
    writer.add_uint64(4, message.round);
  });
}

std::string encode(const FailRequest& message) {
  return written([&](pbf_writer& writer) {
    write_sender(writer, message.from);
    writer.add_bytes(3, message.error);
  });
}

std::string encode(const Progress& message) {
  return written([&](pbf_writer& writer) {
    writer.add_uint64(1, message.updates);
    write_reals(writer, 2, message.counts);
  });
}

std::string encode(const WriteRequest& message, size_t bytes) {
  std::string head = written([&](pbf_writer& writer) {
    write_sender(writer, message.from);
    writer.add_uint64(3, message.target);
    writer.add_uint64(4, message.begin);
  });
  append_data_header(head, bytes);
  return head;
}

std::string encode(const PushRequest& message, size_t bytes) {
  std::string head = written([&](pbf_writer& writer) {
    write_sender(writer, message.from);
    writer.add_uint64(3, message.round);
    writer.add_uint64(4, message.begin);
  });
  append_data_header(head, bytes);
  return head;
}

std::string encode_read_reply(size_t bytes) {
  std::string head;
  append_data_header(head, bytes);
  return head;
}

template <typename Message>
Message decode(const IncomingMessage& message) {
  Message decoded;
  if constexpr (requires { decoded.version; }) decoded.version = 0;  // what proto3 means by a field that is left out
  if constexpr (requires { decoded.inverse_loss_scale; }) decoded.inverse_loss_scale = 0;
  if constexpr (requires { decoded.operation; }) decoded.step = 0;
  read_message(message.prefix(message.size()), decoded);
  return decoded;
}

template <typename Message>
Message decode(const IncomingMessage& message, Data& data) {
  Message decoded;
  read_message(split(message, data), decoded);
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
