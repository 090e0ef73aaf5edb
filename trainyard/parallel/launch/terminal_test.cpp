#include "trainyard/parallel/launch/terminal.h"

#include <array>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::terminal_test {
namespace {

TEST(Terminal, AReaderThatDoesNotReadHoldsNothingUp) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  Terminal terminal{TerminalStream(pipe[1]), TerminalStream(2)};
  const std::string lines(1 << 21, '\n');
  terminal.output.add(lines);
  terminal.output.write_some();
  EXPECT_TRUE(terminal.output.has_unwritten());
  EXPECT_TRUE(terminal.is_behind());
  std::string read;
  std::thread reader([&] {
    std::array<char, 1 << 16> bytes;
    while (read.size() < lines.size()) {
      read.append(bytes.data(), static_cast<size_t>(::read(pipe[0], bytes.data(), bytes.size())));
    }
  });
  terminal.finish();
  reader.join();
  EXPECT_FALSE(terminal.is_behind());
  EXPECT_EQ(read, lines);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Terminal, SaysWhoSpeaks) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  Terminal terminal{TerminalStream(1), TerminalStream(pipe[1])};
  terminal.write_line("what happened");
  terminal.finish();
  std::array<char, 64> bytes{};
  EXPECT_EQ(std::string(bytes.data(), static_cast<size_t>(::read(pipe[0], bytes.data(), bytes.size()))),
            "launch: what happened\n");
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Terminal, AClosedStreamIsAnError) {
  EXPECT_EQ(core::thrown_by([] {
              const int descriptor = ::dup(0);
              ::close(descriptor);
              TerminalStream gone(descriptor);
              gone.add("line\n");
              gone.write_some();
            }).code(),
            core::ErrorCode::kIo);
}

TEST(Terminal, IsBehindAboveAMebibyteOfAStream) {
  const std::string most(1 << 20, 'x');
  Terminal first, second;  // which write nothing here
  first.output.add(most);
  first.error.add(most);
  EXPECT_FALSE(first.is_behind());
  first.output.add("x");
  EXPECT_TRUE(first.is_behind());
  second.error.add(most);
  EXPECT_FALSE(second.is_behind());
  second.error.add("x");
  EXPECT_TRUE(second.is_behind());
  EXPECT_EQ(second.error.unwritten_bytes(), most.size() + 1);
}

}  // namespace
}  // namespace trainyard::parallel::terminal_test
