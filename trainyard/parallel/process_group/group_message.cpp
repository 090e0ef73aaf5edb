#include "trainyard/parallel/process_group/group_message.h"

#include "trainyard/core/sockets/frame.h"

namespace trainyard::parallel {

using core::BodyReader, core::BodyWriter;

std::string encode(const Hello& hello) {
  return BodyWriter().text(hello.token).number(hello.rank).number(hello.size).take();
}

Hello decode_hello(std::string_view body) {
  BodyReader reader(body);
  Hello hello;
  hello.token = reader.text();
  hello.rank = reader.number();
  hello.size = reader.number();
  reader.end();
  return hello;
}

std::string encode(const SharedTexts& texts) {
  BodyWriter writer;
  writer.number(texts.call).text(texts.what).number(texts.from_all ? 1 : 0);
  for (const std::string& text : texts.texts) writer.number(1).text(text);
  return writer.number(0).take();
}

SharedTexts decode_texts(std::string_view body) {
  BodyReader reader(body);
  SharedTexts texts;
  texts.call = reader.number();
  texts.what = reader.text();
  texts.from_all = reader.number() != 0;
  while (reader.number() != 0) texts.texts.push_back(reader.text());
  reader.end();
  return texts;
}

std::string encode(const Activity& activity) {
  return BodyWriter()
      .text(activity.operation)
      .number(activity.step)
      .number(activity.begun)
      .number(activity.done)
      .number(activity.elsewhere)
      .take();
}

Activity decode_activity(std::string_view body) {
  BodyReader reader(body);
  Activity activity;
  activity.operation = reader.text();
  activity.step = reader.number();
  activity.begun = reader.number();
  activity.done = reader.number();
  activity.elsewhere = reader.number();
  reader.end();
  return activity;
}

std::string encode(const core::Error& error) {
  const core::ErrorDetail& detail = error.detail();
  return BodyWriter()
      .number(static_cast<int64_t>(error.code()))
      .text(detail.problem)
      .text(detail.where)
      .text(detail.expected)
      .text(detail.actual)
      .text(detail.remedy)
      .take();
}

core::Error decode_error(std::string_view body) {
  BodyReader reader(body);
  const int64_t code = reader.number();
  core::ErrorDetail detail;
  detail.problem = reader.text();
  detail.where = reader.text();
  detail.expected = reader.text();
  detail.actual = reader.text();
  detail.remedy = reader.text();
  reader.end();
  if (code < 0 || code > static_cast<int64_t>(core::ErrorCode::kInternal)) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      {.problem = "an error has a code that does not exist", .actual = std::to_string(code)});
  }
  return {static_cast<core::ErrorCode>(code), detail};
}

}  // namespace trainyard::parallel
