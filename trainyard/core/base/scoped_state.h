// Puts a prefix in front of the names of a saved state, so that each object can save itself under short names of its
// own.
//
//   ScopedWriter optimizer(writer, "optimizer/");
//   optimizer.integer("step", 3);          // "optimizer/step"
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/stateful.h"

namespace trainyard::core {

// Writes each entry to `writer` with the prefix in front of its name. `writer` must outlive it.
class ScopedWriter : public StateWriter {
 public:
  ScopedWriter(StateWriter& writer, std::string prefix) : writer_(&writer), prefix_(std::move(prefix)) {}

  void tensor(const std::string& name, const at::Tensor& value) override { writer_->tensor(prefix_ + name, value); }
  void integer(const std::string& name, int64_t value) override { writer_->integer(prefix_ + name, value); }
  void real(const std::string& name, double value) override { writer_->real(prefix_ + name, value); }
  void text(const std::string& name, std::string_view value) override { writer_->text(prefix_ + name, value); }

 private:
  StateWriter* writer_;
  std::string prefix_;
};

// Reads those entries of `reader` whose names begin with the prefix. names() returns them without it. `reader` must
// outlive it.
class ScopedReader : public StateReader {
 public:
  ScopedReader(const StateReader& reader, std::string prefix) : reader_(&reader), prefix_(std::move(prefix)) {}

  bool has(const std::string& name) const override { return reader_->has(prefix_ + name); }
  std::vector<std::string> names(std::string_view prefix = "") const override {
    std::vector<std::string> result = reader_->names(prefix_ + std::string(prefix));
    for (std::string& name : result) name.erase(0, prefix_.size());
    return result;
  }
  void tensor(const std::string& name, at::Tensor& destination) const override {
    reader_->tensor(prefix_ + name, destination);
  }
  at::Tensor tensor(const std::string& name) const override { return reader_->tensor(prefix_ + name); }
  int64_t integer(const std::string& name) const override { return reader_->integer(prefix_ + name); }
  double real(const std::string& name) const override { return reader_->real(prefix_ + name); }
  std::string text(const std::string& name) const override { return reader_->text(prefix_ + name); }
  void copy(const std::string& name, StateWriter& writer, const std::string& as) const override {
    reader_->copy(prefix_ + name, writer, as);
  }

 private:
  const StateReader* reader_;
  std::string prefix_;
};

}  // namespace trainyard::core
