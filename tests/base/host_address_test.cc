#include "runtime/base/host_address.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <netinet/in.h>

#include "tests/support/slow_resolver.h"
#include "tests/support/soon.h"

namespace dlaunch {
namespace {

using testing::SlowResolver;
using testing::soon;
using namespace std::chrono_literals;

std::vector<std::string> texts_of(const FoundHost& found) {
  std::vector<std::string> texts;
  for (const HostAddress& each : found.addresses) texts.push_back(numeric_text(each.get()));
  return texts;
}

TEST(HostAddress, AndPortAreOneText) {
  const auto text_of = [](const char* host, const char* port) {
    return endpoint_text(find_host(host, port, soon()).value_or_throw().addresses.at(0).get());
  };
  EXPECT_EQ(text_of("10.0.0.1", "80"), "10.0.0.1:80");
  EXPECT_EQ(text_of("fd00::7", "65535"), "[fd00::7]:65535");
  EXPECT_EQ(text_of("::ffff:10.0.0.1", "80"), "10.0.0.1:80");
}

TEST(HostAddress, OfHostAndPortIsTakenApart) {
  const auto name = split_host_port("host:80");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->host, "host");
  EXPECT_EQ(name->port, "80");
  const auto six = split_host_port("[fe80::1]:29500");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->host, "fe80::1");
  EXPECT_EQ(six->port, "29500");
  EXPECT_TRUE(split_host_port("host:65535"));
  for (const char* bad : {"", "host", ":80", "host:", ":", "[::1]", "host:0", "host:65536",
                          "host:http", "host:+1", "host:8 "}) {
    EXPECT_FALSE(split_host_port(bad)) << bad;
  }
}

TEST(HostAddress, HasBracketsOrNot) {
  EXPECT_EQ(without_brackets("[::1]"), "::1");
  EXPECT_EQ(without_brackets("::1"), "::1");
  EXPECT_EQ(without_brackets("host"), "host");
  EXPECT_EQ(without_brackets("["), "[");
}

TEST(FindHost, TakesNumbersAsTheyAre) {
  for (const char* host : {"127.0.0.1", "::1", "[::1]", "203.0.113.9"}) {
    const auto found = find_host(host, "29500", Deadline::after(0s));
    ASSERT_TRUE(found.ok()) << host << ": " << found.status().to_string();
    ASSERT_EQ(found->addresses.size(), 1U) << host;
    EXPECT_EQ(texts_of(*found).front(), without_brackets(host));
  }
  const auto found = find_host("127.0.0.1", "258", soon());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(reinterpret_cast<const sockaddr_in*>(found->addresses[0].get())->sin_port, htons(258));
}

TEST(FindHost, FindsNames) {
  const auto found = find_host("localhost", "", soon());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_FALSE(found->canonical_name.empty());
  const auto texts = texts_of(*found);
  EXPECT_TRUE(std::ranges::all_of(
      texts, [](const std::string& text) { return text == "127.0.0.1" || text == "::1"; }));
}

TEST(FindHost, SaysWhatTheResolverSaysOfNoneOrOfNoPort) {
  for (const char* host : {"", "no host"}) {
    EXPECT_EQ(find_host(host, "80", soon()).status().code(), StatusCode::kUnavailable) << host;
  }
  EXPECT_EQ(find_host("127.0.0.1", "port", soon()).status().code(), StatusCode::kUnavailable);
}

TEST(FindHost, GivesUpAtTheDeadline) {
  const SlowResolver slow;
  const auto found = find_host("a.slow.test", "80", Deadline::after(20ms));
  EXPECT_EQ(found.status().code(), StatusCode::kTimeout);
  EXPECT_TRUE(find_host("localhost", "80", soon()).ok()) << "others are not kept by that";
}

TEST(FindHost, ThatIsAbandonedEndsByItself) {
  {
    const SlowResolver slow;
    EXPECT_FALSE(find_host("b.slow.test", "80", Deadline::after(1ms)).ok());
  }
  EXPECT_EQ(find_host("c.slow.test", "80", soon()).status().code(), StatusCode::kUnavailable);
}

// The signals that each thread of this process blocks (proc(5): SigBlk).
std::vector<std::uint64_t> blocked_signals() {
  std::vector<std::uint64_t> masks;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) masks.push_back(std::stoull(line.substr(7), nullptr, 16));
    }
  }
  return masks;
}

TEST(FindHost, TakesNoSignalsOfOthers) {
  const SlowResolver slow;
  ASSERT_FALSE(find_host("d.slow.test", "80", Deadline::after(20ms)).ok());
  const std::uint64_t terminate = std::uint64_t{1} << (SIGTERM - 1);
  const auto masks = blocked_signals();
  EXPECT_TRUE(std::ranges::any_of(masks, [&](std::uint64_t mask) { return mask & terminate; }));
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_FALSE(sigismember(&own, SIGTERM)) << "the caller's mask is as it was";
}

}  // namespace
}  // namespace dlaunch
