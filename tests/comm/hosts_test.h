// HostsTest: a test on several hosts with a network between them; skipped, with the reason, where
// the machine does not allow that.
#pragma once

#include <memory>

#include <gtest/gtest.h>

#include "tests/comm/netns_hosts.h"

namespace dlaunch::testing {

class HostsTest : public ::testing::Test {
 protected:
  static constexpr int kHosts = 3;

  void SetUp() override {
    auto made = NetworkHosts::make(kHosts);
    if (!made.ok()) GTEST_SKIP() << made.status().to_string();
    network_ = *std::move(made);
  }
  const NetworkHosts& network() const { return *network_; }

 private:
  std::unique_ptr<NetworkHosts> network_;
};

}  // namespace dlaunch::testing
