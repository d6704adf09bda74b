#include "runtime/base/chosen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dlaunch {
namespace {

using ::testing::HasSubstr;

const std::vector<InterfaceAddress> kOwn{{"lo", "127.0.0.1"},  {"eth0", "192.0.2.7"},
                                         {"ib0", "fd00:1::7"}, {"lo", "::1"},
                                         {"ib0", "10.1.0.7"},  {"wg0", "fd00:2::7"}};

std::string chosen(std::string_view choice) {
  const auto address = choose_address(choice, kOwn);
  return address.ok() ? *address : "(none)";
}

TEST(ChosenAddress, IsThatOfAnInterface) {
  EXPECT_EQ(chosen("eth0"), "192.0.2.7");
  EXPECT_EQ(chosen("ib0"), "10.1.0.7") << "the IPv4 address of two";
  EXPECT_EQ(chosen("wg0"), "[fd00:2::7]");
  EXPECT_EQ(chosen("eth"), "(none)");
}

TEST(ChosenAddress, IsTheFirstWithinAPrefix) {
  EXPECT_EQ(chosen("10.1.0.0/16"), "10.1.0.7");
  EXPECT_EQ(chosen("10.1.0.6/31"), "10.1.0.7");
  EXPECT_EQ(chosen("10.1.0.4/31"), "(none)");
  EXPECT_EQ(chosen("0.0.0.0/0"), "127.0.0.1");
  EXPECT_EQ(chosen("fd00:2::/64"), "[fd00:2::7]");
  EXPECT_EQ(chosen("fd00:3::/64"), "(none)");
  EXPECT_EQ(chosen("::/0"), "[fd00:1::7]");
}

TEST(ChosenAddress, MayBeGivenAsItIs) {
  EXPECT_EQ(chosen("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(chosen("fd00:1:0::7"), "[fd00:1::7]");
  EXPECT_EQ(chosen("192.0.2.8"), "(none)");
}

TEST(ChosenAddress, IsThatOfTheFirstAlternativeThatThereIs) {
  EXPECT_EQ(chosen("ib1,10.2.0.0/16,eth0,ib0"), "192.0.2.7");
  EXPECT_EQ(chosen("ib1,eth1"), "(none)");
  EXPECT_EQ(chosen(""), "(none)");
  EXPECT_EQ(chosen(","), "(none)");
}

TEST(ChosenAddress, ThatThereIsNotIsAnErrorWithThoseThatThereAre) {
  for (const char* wrong : {"eth9", "10.1.0.0/33", "10.1.0.0/", "10.1.0.0/-1", "/8"}) {
    const auto address = choose_address(wrong, kOwn);
    EXPECT_EQ(address.status().code(), StatusCode::kNotFound) << wrong;
    EXPECT_THAT(address.status().to_string(), HasSubstr("'" + std::string(wrong) + "' is no"));
    EXPECT_THAT(address.status().to_string(), HasSubstr("lo 127.0.0.1, eth0 192.0.2.7"));
  }
  EXPECT_THAT(choose_address("eth0", {}).status().to_string(), HasSubstr("which has no address"));
}

TEST(ChosenAddress, IsOneOfThisHosts) {
  const auto loopback = choose_address("127.0.0.0/8");
  ASSERT_TRUE(loopback.ok()) << loopback.status().to_string();
  EXPECT_EQ(*loopback, "127.0.0.1");
}

}  // namespace
}  // namespace dlaunch
