// Tells MemorySanitizer what functions of libstdc++, which is not compiled with it, have written. Its other functions
// return values in registers, which count as written, change what was written before, or copy by memcpy, which the
// sanitizer follows by itself. Each function here replaces one of libstdc++ at link time (ld's --wrap).
#include <charconv>
#include <ios>
#include <list>
#include <map>
#include <stdexcept>
#include <string>

#include <sanitizer/msan_interface.h>

// NOLINTBEGIN(readability-identifier-naming): the linker's names
extern "C" {

void __real__ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_(bool, std::_Rb_tree_node_base*,
                                                                              std::_Rb_tree_node_base*,
                                                                              std::_Rb_tree_node_base&);
void __wrap__ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_(bool left, std::_Rb_tree_node_base* node,
                                                                              std::_Rb_tree_node_base* parent,
                                                                              std::_Rb_tree_node_base& header) {
  __msan_unpoison(node, sizeof *node);
  __real__ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_(left, node, parent, header);
}

void __real__ZNSt8__detail15_List_node_base7_M_hookEPS0_(std::__detail::_List_node_base*,
                                                         std::__detail::_List_node_base*);
void __wrap__ZNSt8__detail15_List_node_base7_M_hookEPS0_(std::__detail::_List_node_base* node,
                                                         std::__detail::_List_node_base* next) {
  __msan_unpoison(node, sizeof *node);
  __real__ZNSt8__detail15_List_node_base7_M_hookEPS0_(node, next);
}

std::from_chars_result __real__ZSt10from_charsPKcS0_RdSt12chars_format(const char*, const char*, double&,
                                                                       std::chars_format);
std::from_chars_result __wrap__ZSt10from_charsPKcS0_RdSt12chars_format(const char* first, const char* last,
                                                                       double& value, std::chars_format format) {
  const auto result = __real__ZSt10from_charsPKcS0_RdSt12chars_format(first, last, value, format);
  if (result.ec == std::errc()) __msan_unpoison(&value, sizeof value);
  return result;
}

std::from_chars_result __real__ZSt10from_charsPKcS0_RfSt12chars_format(const char*, const char*, float&,
                                                                       std::chars_format);
std::from_chars_result __wrap__ZSt10from_charsPKcS0_RfSt12chars_format(const char* first, const char* last,
                                                                       float& value, std::chars_format format) {
  const auto result = __real__ZSt10from_charsPKcS0_RfSt12chars_format(first, last, value, format);
  if (result.ec == std::errc()) __msan_unpoison(&value, sizeof value);
  return result;
}

void __real__ZNSt8ios_baseC2Ev(std::ios_base*);
void __wrap__ZNSt8ios_baseC2Ev(std::ios_base* stream) {
  __msan_unpoison(stream, sizeof *stream);
  __real__ZNSt8ios_baseC2Ev(stream);
}

void __real__ZNSt6localeC1Ev(std::locale*);
void __wrap__ZNSt6localeC1Ev(std::locale* locale) {
  __msan_unpoison(locale, sizeof *locale);
  __real__ZNSt6localeC1Ev(locale);
}

void __real__ZNSt13runtime_errorC2EPKc(std::runtime_error*, const char*);
void __wrap__ZNSt13runtime_errorC2EPKc(std::runtime_error* error, const char* text) {
  __real__ZNSt13runtime_errorC2EPKc(error, text);
  __msan_unpoison(error, sizeof *error);
  __msan_unpoison_string(error->what());
}

void __real__ZNSt13runtime_errorC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(std::runtime_error*,
                                                                                          const std::string&);
void __wrap__ZNSt13runtime_errorC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(std::runtime_error* error,
                                                                                          const std::string& text) {
  __real__ZNSt13runtime_errorC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(error, text);
  __msan_unpoison(error, sizeof *error);
  __msan_unpoison_string(error->what());
}
}
// NOLINTEND(readability-identifier-naming)
