#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"
#include "trainyard/train/checkpoint/name_list.h"

namespace trainyard::train {
namespace {

void check_identity(const std::string& path, std::string_view what, const std::string& expected,
                    const std::string& actual) {
  if (expected.empty() || expected == actual) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("checkpoint of another {}", what),
                     .where = path,
                     .expected = expected,
                     .actual = actual.empty() ? "none named" : actual,
                     .remedy = fmt::format("use {} {}, or another directory", what, actual)});
}

std::unique_ptr<CheckpointReader> open_verified(const CheckpointInfo& checkpoint, Manifest manifest,
                                                const CheckpointIdentity* expected, core::FileSystem& files) {
  if (expected != nullptr) {
    const CheckpointIdentity& actual = manifest.identity;
    const auto classes = [](int64_t count) { return count == 0 ? std::string() : fmt::format("{}", count); };
    check_identity(checkpoint.path, "model", expected->model, actual.model);
    check_identity(checkpoint.path, "data set", expected->dataset, actual.dataset);
    check_identity(checkpoint.path, "number of classes", classes(expected->num_classes), classes(actual.num_classes));
  }
  return std::make_unique<CheckpointReader>(checkpoint.path, std::move(manifest), files);
}

// Takes down what an object would save: name -> "float32 [10, 64]" or kind.
class NameRecorder : public core::StateWriter {
 public:
  std::map<std::string, std::string> entries;
  void tensor(const std::string& name, const at::Tensor& value) override {
    entries[name] = describe_tensor(value.scalar_type(), value.sizes().vec());
  }
  void integer(const std::string& name, int64_t) override { entries[name] = "integer"; }
  void real(const std::string& name, double) override { entries[name] = "real"; }
  void text(const std::string& name, std::string_view) override { entries[name] = "text"; }
};

// " what: a, b;"; nothing for none.
std::string listed(std::string_view what, const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format(" {}: {};", what, first_names(names));
}

struct Differences {
  std::vector<std::string> missing{};
  std::string text{};  // of all differences; empty when names, shapes and types are the same
};

Differences differences(const CheckpointReader& saved, const core::Stateful& state) {
  NameRecorder wanted;
  state.save(wanted);
  std::vector<std::string> missing, unexpected, other;
  for (const auto& [name, description] : wanted.entries) {
    if (!saved.has(name)) {
      missing.push_back(name);
    } else if (const std::string was = saved.describe(name); was != description) {
      other.push_back(fmt::format("{} is {}, saved as {}", name, description, was));
    }
  }
  for (const std::string& name : saved.names()) {
    if (!wanted.entries.contains(name)) unexpected.push_back(name);
  }
  std::string text = listed("missing in the checkpoint", missing) + listed("only in the checkpoint", unexpected) +
                     listed("of another shape or type", other);
  return {.missing = std::move(missing), .text = std::move(text)};
}

}  // namespace

CheckpointIdentity read_checkpoint_identity(const CheckpointInfo& checkpoint, core::FileSystem& files) {
  return read_manifest(checkpoint.path, files).identity;
}

std::unique_ptr<core::StateReader> open_checkpoint(const CheckpointInfo& checkpoint, const CheckpointIdentity* expected,
                                                   core::FileSystem& files) {
  return open_verified(checkpoint, read_manifest(checkpoint.path, files), expected, files);
}

void load_checkpoint(const CheckpointInfo& checkpoint, const CheckpointIdentity* expected, core::Stateful& state,
                     core::FileSystem& files) {
  load_checkpoint(checkpoint, read_manifest(checkpoint.path, files), expected, state, files);
}

void load_checkpoint(const CheckpointInfo& checkpoint, Manifest manifest, const CheckpointIdentity* expected,
                     core::Stateful& state, core::FileSystem& files) {
  const std::unique_ptr<CheckpointReader> reader = open_verified(checkpoint, std::move(manifest), expected, files);
  // Looked at before loading, which may change what the object would save.
  Differences different = differences(*reader, state);
  try {
    state.load(*reader);
  } catch (const core::Error& error) {
    if (error.code() != core::ErrorCode::kCorruptData || different.text.empty()) throw;
    different.text.pop_back();
    core::ErrorDetail detail = error.detail();
    detail.problem = fmt::format("checkpoint does not fit ({}): {}", different.text.substr(1), detail.problem);
    throw CheckpointMismatch(std::move(detail), std::move(different.missing));
  }
  std::vector<std::string> unread = reader->unread();
  // What a best checkpoint is the best by, where it was given the name of its step; and what other ranks read of
  // compressed gradients, of which a run that does not compress warns by itself.
  std::erase_if(unread,
                [](const std::string& name) { return name.starts_with("best/") || name.starts_with("compression/"); });
  if (!unread.empty()) {
    core::log::warning("{}:{} this run has no use for them", checkpoint.path, listed("only in the checkpoint", unread));
  }
}

}  // namespace trainyard::train
