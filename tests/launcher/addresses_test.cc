// Addresses as text.
#include <gtest/gtest.h>

#include "launcher/nodes/addresses.h"
#include "runtime/base/host_address.h"

namespace dlaunch {
namespace {

TEST(Addresses, OfIPv6AreTheSameWithBracketsAndWithout) {
  EXPECT_EQ(host_port("[::1]", 29500), "[::1]:29500");
  EXPECT_EQ(host_port("::1", 29500), "[::1]:29500");
  EXPECT_EQ(host_port("10.0.0.1", 29500), "10.0.0.1:29500");
}

TEST(Addresses, HaveAPortBehindTheirLastColonUnlessThatIsOfIPv6) {
  EXPECT_EQ(before_port("host:80"), 4U);
  EXPECT_EQ(before_port("[fd00::1]:80"), 9U);
  for (const char* none :
       {"host", "[fd00::1]", "fd00::1", "::1", "fe80::1%eth0", "fd00::1:29500", ""}) {
    EXPECT_EQ(before_port(none), std::string::npos) << none;
  }
}

TEST(Addresses, OfHostsHaveNeitherAPortNorASchemeNorHalfABracket) {
  for (const char* host : {"host", "10.0.0.1", "fd00::2", "[fd00::2]", "[fe80::1%eth0]", "::"}) {
    EXPECT_TRUE(is_host(host)) << host;
  }
  for (const char* none :
       {"", "[]", "]", "[::1", "::1]", "http://x", "fd00::2:29500", "a:b", "[host]"}) {
    EXPECT_FALSE(is_host(none)) << none;
  }
}

TEST(Addresses, OfLoopbackAndOfNoneAreKnown) {
  for (const char* address : {"127.0.0.1", "127.0.1.1", "::1", "[::1]"}) {
    EXPECT_TRUE(is_loopback(address)) << address;
    EXPECT_FALSE(is_unspecified(address)) << address;
  }
  for (const char* address : {"0.0.0.0", "::", "[::]"}) {
    EXPECT_TRUE(is_unspecified(address)) << address;
    EXPECT_FALSE(is_loopback(address)) << address;
  }
  for (const char* address : {"10.0.0.1", "fe80::1", "localhost", "", "["}) {
    EXPECT_FALSE(is_unspecified(address) || is_loopback(address)) << address;
  }
}

TEST(Addresses, AreServedAsTheyAreGiven) {
  EXPECT_EQ(address_to_serve("10.0.0.1", {"10.0.0.1"}), "10.0.0.1");
  EXPECT_EQ(address_to_serve("127.0.0.1", {"127.0.0.1"}), "127.0.0.1");
  EXPECT_EQ(address_to_serve("[::1]", {"::1"}), "::1");
  EXPECT_EQ(address_to_serve("0.0.0.0", {"0.0.0.0"}), "0.0.0.0");
  EXPECT_EQ(address_to_serve("localhost", {"::1", "127.0.0.1"}), "::1");
}

TEST(Addresses, OfANameAreAllServedWhereOthersMayKnowItByAnother) {
  EXPECT_EQ(address_to_serve("head", {"10.0.0.1", "10.0.0.1"}), "10.0.0.1");
  EXPECT_EQ(address_to_serve("head", {"127.0.1.1"}), "::");
  EXPECT_EQ(address_to_serve("head", {"fd00::1", "10.0.0.1"}), "::");
}

}  // namespace
}  // namespace dlaunch
