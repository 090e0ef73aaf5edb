// Tells MemorySanitizer what functions of libstdc++, which is not compiled with it, have written. Its other functions
// return values in registers, which count as written, change what was written before, or copy by memcpy, which the
// sanitizer follows by itself. Each function here replaces one of libstdc++ at link time (ld's --wrap).
#include <charconv>
#include <fstream>
#include <ios>
#include <istream>
#include <list>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <sanitizer/msan_interface.h>

namespace {

void mark_written(const std::string& text) {
  __msan_unpoison(&text, sizeof text);
  __msan_unpoison(text.data(), text.size() + 1);
}

void mark_written(const std::exception& error, size_t bytes) {
  __msan_unpoison(&error, bytes);
  __msan_unpoison_string(error.what());
}

}  // namespace

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

void __real__ZNSt13runtime_errorC1EPKc(std::runtime_error*, const char*);
void __wrap__ZNSt13runtime_errorC1EPKc(std::runtime_error* error, const char* text) {
  __real__ZNSt13runtime_errorC1EPKc(error, text);
  mark_written(*error, sizeof *error);
}

void __real__ZNSt13runtime_errorC2EPKc(std::runtime_error*, const char*);
void __wrap__ZNSt13runtime_errorC2EPKc(std::runtime_error* error, const char* text) {
  __real__ZNSt13runtime_errorC2EPKc(error, text);
  mark_written(*error, sizeof *error);
}

void __real__ZNSt11logic_errorC1EPKc(std::logic_error*, const char*);
void __wrap__ZNSt11logic_errorC1EPKc(std::logic_error* error, const char* text) {
  __real__ZNSt11logic_errorC1EPKc(error, text);
  mark_written(*error, sizeof *error);
}

void __real__ZNSt13runtime_errorC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(std::runtime_error*,
                                                                                          const std::string&);
void __wrap__ZNSt13runtime_errorC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(std::runtime_error* error,
                                                                                          const std::string& text) {
  __real__ZNSt13runtime_errorC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(error, text);
  mark_written(*error, sizeof *error);
}

void __real__ZNSt13runtime_errorC1ERKS_(std::runtime_error*, const std::runtime_error&);
void __wrap__ZNSt13runtime_errorC1ERKS_(std::runtime_error* error, const std::runtime_error& other) {
  __real__ZNSt13runtime_errorC1ERKS_(error, other);
  mark_written(*error, sizeof *error);
}

void __real__ZNSt13runtime_errorC2ERKS_(std::runtime_error*, const std::runtime_error&);
void __wrap__ZNSt13runtime_errorC2ERKS_(std::runtime_error* error, const std::runtime_error& other) {
  __real__ZNSt13runtime_errorC2ERKS_(error, other);
  mark_written(*error, sizeof *error);
}

void __real__ZNSt13runtime_errorC2EOS_(std::runtime_error*, std::runtime_error&&);
void __wrap__ZNSt13runtime_errorC2EOS_(std::runtime_error* error, std::runtime_error&& other) {
  __real__ZNSt13runtime_errorC2EOS_(error, std::move(other));
  mark_written(*error, sizeof *error);
}

void __real__ZNSt7__cxx1119basic_istringstreamIcSt11char_traitsIcESaIcEEC1ERKNS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
    std::istringstream*, const std::string&, std::ios_base::openmode);
void __wrap__ZNSt7__cxx1119basic_istringstreamIcSt11char_traitsIcESaIcEEC1ERKNS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
    std::istringstream* stream, const std::string& text, std::ios_base::openmode mode) {
  __msan_unpoison(stream, sizeof *stream);
  __real__ZNSt7__cxx1119basic_istringstreamIcSt11char_traitsIcESaIcEEC1ERKNS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
      stream, text, mode);
}

void __real__ZNSt7__cxx1119basic_istringstreamIcSt11char_traitsIcESaIcEEC1EONS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
    std::istringstream*, std::string&&, std::ios_base::openmode);
void __wrap__ZNSt7__cxx1119basic_istringstreamIcSt11char_traitsIcESaIcEEC1EONS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
    std::istringstream* stream, std::string&& text, std::ios_base::openmode mode) {
  __msan_unpoison(stream, sizeof *stream);
  __real__ZNSt7__cxx1119basic_istringstreamIcSt11char_traitsIcESaIcEEC1EONS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
      stream, std::move(text), mode);
}

void __real__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1Ev(std::stringstream*);
void __wrap__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1Ev(std::stringstream* stream) {
  __msan_unpoison(stream, sizeof *stream);
  __real__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1Ev(stream);
}

void __real__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1ERKNS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
    std::stringstream*, const std::string&, std::ios_base::openmode);
void __wrap__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1ERKNS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
    std::stringstream* stream, const std::string& text, std::ios_base::openmode mode) {
  __msan_unpoison(stream, sizeof *stream);
  __real__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1ERKNS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
      stream, text, mode);
}

void __real__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1EONS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
    std::stringstream*, std::string&&, std::ios_base::openmode);
void __wrap__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1EONS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
    std::stringstream* stream, std::string&& text, std::ios_base::openmode mode) {
  __msan_unpoison(stream, sizeof *stream);
  __real__ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1EONS_12basic_stringIcS2_S3_EESt13_Ios_Openmode(
      stream, std::move(text), mode);
}

void __real__ZNSt14basic_ifstreamIcSt11char_traitsIcEEC1ERKNSt7__cxx1112basic_stringIcS1_SaIcEEESt13_Ios_Openmode(
    std::ifstream*, const std::string&, std::ios_base::openmode);
void __wrap__ZNSt14basic_ifstreamIcSt11char_traitsIcEEC1ERKNSt7__cxx1112basic_stringIcS1_SaIcEEESt13_Ios_Openmode(
    std::ifstream* stream, const std::string& path, std::ios_base::openmode mode) {
  __msan_unpoison(stream, sizeof *stream);
  __real__ZNSt14basic_ifstreamIcSt11char_traitsIcEEC1ERKNSt7__cxx1112basic_stringIcS1_SaIcEEESt13_Ios_Openmode(
      stream, path, mode);
}

// Returns a text, to which the caller passes the room first.
std::string* __real__ZNKRSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEE3strEv(std::string*,
                                                                                        const std::stringstream*);
std::string* __wrap__ZNKRSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEE3strEv(
    std::string* text, const std::stringstream* stream) {
  __real__ZNKRSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEE3strEv(text, stream);
  mark_written(*text);
  return text;
}

std::istream&
__real__ZSt7getlineIcSt11char_traitsIcESaIcEERSt13basic_istreamIT_T0_ES7_RNSt7__cxx1112basic_stringIS4_S5_T1_EES4_(
    std::istream&, std::string&, char);
std::istream&
__wrap__ZSt7getlineIcSt11char_traitsIcESaIcEERSt13basic_istreamIT_T0_ES7_RNSt7__cxx1112basic_stringIS4_S5_T1_EES4_(
    std::istream& stream, std::string& text, char end) {
  __real__ZSt7getlineIcSt11char_traitsIcESaIcEERSt13basic_istreamIT_T0_ES7_RNSt7__cxx1112basic_stringIS4_S5_T1_EES4_(
      stream, text, end);
  mark_written(text);
  return stream;
}

std::istream& __real__ZStrsIcSt11char_traitsIcESaIcEERSt13basic_istreamIT_T0_ES7_RNSt7__cxx1112basic_stringIS4_S5_T1_EE(
    std::istream&, std::string&);
std::istream& __wrap__ZStrsIcSt11char_traitsIcESaIcEERSt13basic_istreamIT_T0_ES7_RNSt7__cxx1112basic_stringIS4_S5_T1_EE(
    std::istream& stream, std::string& text) {
  __real__ZStrsIcSt11char_traitsIcESaIcEERSt13basic_istreamIT_T0_ES7_RNSt7__cxx1112basic_stringIS4_S5_T1_EE(stream,
                                                                                                            text);
  mark_written(text);
  return stream;
}

std::istream& __real__ZNSirsERi(std::istream&, int&);
std::istream& __wrap__ZNSirsERi(std::istream& stream, int& value) {
  __real__ZNSirsERi(stream, value);
  __msan_unpoison(&value, sizeof value);
  return stream;
}

std::istream& __real__ZNSi10_M_extractImEERSiRT_(std::istream&, unsigned long&);
std::istream& __wrap__ZNSi10_M_extractImEERSiRT_(std::istream& stream, unsigned long& value) {
  __real__ZNSi10_M_extractImEERSiRT_(stream, value);
  __msan_unpoison(&value, sizeof value);
  return stream;
}
}
// NOLINTEND(readability-identifier-naming)
