// Fabric: the endpoints of a whole world in one process, of any transport, and the means to drive
// each from a thread of its own. What the contract tests run over.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/transport_choice.h"
#include "transport/endpoint.h"
#include "transport/inbox.h"
#include "transport/mesh/wait_policy.h"

namespace dlaunch {

/// No wait in these tests is longer.
inline constexpr std::chrono::seconds kTestTimeout{20};

::testing::AssertionResult is_ok(const Status& status);
#define EXPECT_OK(expression) EXPECT_TRUE(::dlaunch::is_ok(expression))
#define ASSERT_OK(expression) ASSERT_TRUE(::dlaunch::is_ok(expression))

struct Fabric {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<std::vector<std::unique_ptr<Endpoint>>> more;  // of each rank: its further lanes
  /// Makes a rank die without a word. Its endpoint must not be in use, and not be used again.
  std::function<void(int rank)> kill;

  int world_size() const { return static_cast<int>(endpoints.size()); }
  Endpoint& operator[](int rank) { return *endpoints[static_cast<std::size_t>(rank)]; }

  /// Runs body(rank, endpoint) for every rank but `absent` in a thread of its own.
  void run(const std::function<void(int rank, Endpoint& endpoint)>& body, int absent = -1);
};

/// A way to make a fabric, by name; the parameter of the contract tests.
struct FabricKind {
  const char* name;
  Fabric (*make)(int world_size);
};
std::vector<FabricKind> all_fabric_kinds();
void PrintTo(const FabricKind& kind, std::ostream* out);

/// Endpoints of one process, connected by connect_mesh over loopback and shared memory. Ranks are
/// on hosts by turns.
struct MeshFabricOptions {
  TransportChoice transport = TransportChoice::kAuto;
  int hosts = 1;
  WaitPolicy wait;
  int lanes = 1;
  std::size_t kept_bytes = kDefaultKeptBytes;
};
Fabric make_mesh_fabric(int world_size, const MeshFabricOptions& options);

/// "operation 3 of 1000 elements".
std::string describe_for_tests(const MessageSignature& signature);

Transfer make_transfer(int peer, MessageTag tag, std::vector<std::byte>& data,
                       MessageSignature signature = {});

/// Drives `endpoint` until the transfer is done; its status, or kTimeout.
Status finish(Endpoint& endpoint, Transfer& transfer);
Status send(Endpoint& endpoint, int peer, MessageTag tag, std::vector<std::byte>& data,
            MessageSignature signature = {});
Status recv(Endpoint& endpoint, int peer, MessageTag tag, std::vector<std::byte>& data,
            MessageSignature signature = {});
/// Drives `endpoint` until it has failed; its failure, or ok at the deadline.
Status await_failure(Endpoint& endpoint);
/// Every rank sends an empty message to every other and receives one: all are there.
Status meet(Endpoint& endpoint, std::uint64_t sequence);

/// Random bytes from a seed that names (sender, receiver, message), so that both sides can make
/// them.
std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed);
/// A fresh seed, printed when a test fails.
std::uint64_t fresh_seed();

}  // namespace dlaunch
