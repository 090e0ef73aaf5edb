// Parses the class of a WebDataset sample: a number, or a name.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/core/base/error.h"

namespace trainyard::data {

struct WebLabel {
  bool is_number = false;
  int64_t number = 0;
  std::string name{};  // name of the class; may be empty when there is a number
};

// Reads KEY.cls: a whole number, or any other text is a name; blanks around it do not count. Empty is an error.
core::Result<WebLabel> parse_cls_label(const std::string& text);

// Reads KEY.json, an object: "label", else "class", a whole number or a name, or "classname" or "class_name", which may
// also accompany a number.
core::Result<WebLabel> parse_json_label(const std::string& text);

// Returns the text of a KEY.json with both: {"label":3,"class_name":"cat"}. Empty where the name is no UTF-8, which
// JSON cannot hold.
[[nodiscard]] std::string json_label(int64_t number, const std::string& name);

}  // namespace trainyard::data
