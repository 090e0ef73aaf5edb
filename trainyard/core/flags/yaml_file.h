// Reads YAML files, and says where something in them is.
#pragma once

#include <string>
#include <string_view>

#include <yaml-cpp/yaml.h>

namespace trainyard::core {

// Returns the root of the one document of a file of at most 1 MiB; a null node for an empty file. `what` names the file
// in errors: "config file". Throws kInvalidArgument, with the line, for text that is not YAML and for more than one
// document, and what reading throws.
[[nodiscard]] YAML::Node load_yaml_file(const std::string& path, std::string_view what);

// Returns "PATH:LINE", with lines from 1; the path alone for a node that is in no line.
[[nodiscard]] std::string yaml_place(const std::string& path, const YAML::Mark& mark);

}  // namespace trainyard::core
