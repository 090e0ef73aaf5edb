// Maps labels to classes. Class folders, and labels that are words, are numbered by their position among all names. If
// a subset lacked a class, its numbers would differ; therefore the names of the training set number all subsets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

// Reads "fail" or "skip". Throws kNotFound for other texts.
OnUnknownClass on_unknown_class(const std::string& name);

// Returns the label of each of the different `names`, found in `where`, or -1 for one that is unknown and skipped. A
// name that is known twice has the first of its labels. Throws kInvalidArgument with the unknown ones and what is
// known, unless they are skipped. Logs how many known classes are not among the names.
[[nodiscard]] std::vector<int64_t> labels_of_classes(std::span<const std::string> names, const KnownClasses& known,
                                                     const std::string& where);

// Returns the name for a line of text: control characters as \n or \x1b, and only the beginning of a very long one.
[[nodiscard]] std::string printable_class(std::string_view name);
// Returns printable_class() in quotes.
[[nodiscard]] std::string quoted_class(std::string_view name);
// Returns the first five, and how many there are: "'cat', 'dog', ... (12 in all)".
[[nodiscard]] std::string quoted_classes(std::span<const std::string> names);

// Returns how `now` differs from `before`: "renamed: 'cat' is now 'felis'; added: 'fox'; removed: 'dog'", or an empty
// text. A name at the same position of lists of equal length counts as renamed.
[[nodiscard]] std::string class_difference(std::span<const std::string> before, std::span<const std::string> now);

// Returns the names as one text: one name a line, with \n and \\ for line breaks and backslashes in it.
[[nodiscard]] std::string encode_class_names(std::span<const std::string> names);
// Returns the names of such a text.
[[nodiscard]] std::vector<std::string> decode_class_names(std::string_view text);

}  // namespace trainyard::data
