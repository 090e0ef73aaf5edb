#include "trainyard/data/datasets/class_list.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::data {
namespace {

constexpr size_t kShown = 5;     // names in a message
constexpr size_t kLongest = 80;  // bytes of each

std::vector<std::string> missing_in(std::span<const std::string> names, std::span<const std::string> others) {
  const std::unordered_set<std::string_view> there(others.begin(), others.end());
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!there.contains(name)) missing.push_back(name);
  }
  return missing;
}

void append(std::string& text, std::string_view what, const std::string& names) {
  text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", what, names);
}

core::Error unknown_classes(const std::vector<std::string>& unknown, const KnownClasses& known,
                            const std::string& where) {
  const std::string nearest = core::nearest_name(unknown.front(), known.names);
  const std::string meant =
      nearest.empty() ? "" : fmt::format(" ({} may be {})", quoted_class(unknown.front()), quoted_class(nearest));
  return {core::ErrorCode::kInvalidArgument,
          {.problem = "classes that the training does not know",
           .where = where,
           .expected = fmt::format("{} of {}: {}", known.names.size() == 1 ? "the class" : "some of the classes",
                                   known.origin, quoted_classes(known.names)),
           .actual = fmt::format("{} unknown: {}{}", unknown.size(), quoted_classes(unknown), meant),
           .remedy = "rename or remove them, or pass --on_unknown_class=skip to leave their images out"}};
}

}  // namespace

OnUnknownClass on_unknown_class(const std::string& name) {
  if (name == "fail") return OnUnknownClass::kFail;
  if (name == "skip") return OnUnknownClass::kSkip;
  throw core::unknown_name("way with unknown classes", name, {"fail", "skip"});
}

std::vector<int64_t> labels_of_classes(std::span<const std::string> names, const KnownClasses& known,
                                       const std::string& where) {
  std::unordered_map<std::string_view, int64_t> labels;
  // The first of two equal names counts, as with ImageNet's "crane"; those behind keep their places.
  for (size_t i = 0; i < known.names.size(); ++i) labels.emplace(known.names[i], static_cast<int64_t>(i));
  std::vector<int64_t> result;
  std::vector<std::string> unknown;
  for (const std::string& name : names) {
    const auto found = labels.find(name);
    result.push_back(found == labels.end() ? -1 : found->second);
    if (found == labels.end()) unknown.push_back(name);
  }
  if (!unknown.empty() && known.on_unknown == OnUnknownClass::kFail) throw unknown_classes(unknown, known, where);
  if (const std::vector<std::string> absent = missing_in(known.names, names); !absent.empty()) {
    core::log::info("{}: {} of the {} classes of {} {} not there: {}", where, absent.size(), known.names.size(),
                    known.origin, absent.size() == 1 ? "is" : "are", quoted_classes(absent));
  }
  return result;
}

std::string quoted_class(std::string_view name) {
  return fmt::format("'{}'", printable_class(name));
}

std::string printable_class(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return name.size() > kLongest ? text + "..." : text;
}

std::string quoted_classes(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names.first(std::min(names.size(), kShown))) {
    text += (text.empty() ? "" : ", ") + quoted_class(name);
  }
  return names.size() > kShown ? fmt::format("{}, ... ({} in all)", text, names.size()) : text;
}

std::string class_difference(std::span<const std::string> before, std::span<const std::string> now) {
  if (std::equal(before.begin(), before.end(), now.begin(), now.end())) return "";
  std::vector<std::string> removed = missing_in(before, now), added = missing_in(now, before);
  std::string text, renamed;
  if (removed.size() == added.size() && before.size() == now.size()) {
    for (size_t i = 0; i < std::min(removed.size(), kShown); ++i) {
      renamed += fmt::format("{}{} is now {}", i == 0 ? "" : ", ", quoted_class(removed[i]), quoted_class(added[i]));
    }
    if (removed.size() > kShown) renamed += fmt::format(", ... ({} in all)", removed.size());
    if (renamed.empty()) return "the same names in another order";
    append(text, "renamed", renamed);
    return text;
  }
  if (!added.empty()) append(text, "added", quoted_classes(added));
  if (!removed.empty()) append(text, "removed", quoted_classes(removed));
  return text.empty() ? "some names come twice" : text;
}

std::string encode_class_names(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) {
    for (const char c : name) {
      if (c == '\n') {
        text += "\\n";
      } else if (c == '\\') {
        text += "\\\\";
      } else {
        text += c;
      }
    }
    text += '\n';
  }
  return text;
}

std::vector<std::string> decode_class_names(std::string_view text) {
  std::vector<std::string> names;
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      names.push_back(std::move(name));
      name.clear();
    } else if (text[i] == '\\' && i + 1 < text.size()) {
      name += text[++i] == 'n' ? '\n' : text[i];
    } else {
      name += text[i];
    }
  }
  return names;
}

}  // namespace trainyard::data
