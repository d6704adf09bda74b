#include "tests/transport/fabric.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "runtime/base/token.h"
#include "tests/transport/thread_exchange.h"
#include "transport/loopback/loopback.h"
#include "transport/mesh/mesh.h"
#include "transport/mesh/mesh_endpoint.h"

namespace dlaunch {
namespace {

Fabric make_loopback(int world_size) {
  auto network = std::make_shared<LoopbackNetwork>(world_size, describe_for_tests);
  Fabric fabric;
  for (int rank = 0; rank < world_size; ++rank) fabric.endpoints.push_back(network->endpoint(rank));
  fabric.kill = [network](int rank) {
    network->report_death(rank);
    network->stop(rank);
  };
  return fabric;
}

constexpr WaitPolicy kSpinning{.spin = std::chrono::microseconds(50), .yields = 0};
constexpr WaitPolicy kYielding{.spin = std::chrono::nanoseconds(0), .yields = 20};
constexpr WaitPolicy kSleeping{};

template <TransportChoice kTransport, int kHosts, const WaitPolicy& kWait>
Fabric make_mesh(int world_size) {
  return make_mesh_fabric(world_size, {.transport = kTransport, .hosts = kHosts, .wait = kWait});
}

}  // namespace

::testing::AssertionResult is_ok(const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.to_string();
}

void Fabric::run(const std::function<void(int, Endpoint&)>& body, int absent) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size(); ++rank) {
    if (rank != absent) threads.emplace_back([&, rank] { body(rank, (*this)[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<FabricKind> all_fabric_kinds() {
  using enum TransportChoice;
  return {{"loopback", make_loopback},
          {"tcp", make_mesh<kTcp, 1, kSleeping>},
          {"tcp_spinning", make_mesh<kTcp, 1, kSpinning>},
          {"shm", make_mesh<kSharedMemory, 1, kSleeping>},
          {"shm_spinning", make_mesh<kSharedMemory, 1, kSpinning>},
          {"shm_yielding", make_mesh<kSharedMemory, 1, kYielding>},
          {"mixed", make_mesh<kAuto, 2, kSleeping>},
          {"mixed_spinning", make_mesh<kAuto, 2, kSpinning>}};
}

void PrintTo(const FabricKind& kind, std::ostream* out) {
  *out << kind.name;
}

Fabric make_mesh_fabric(int world_size, const MeshFabricOptions& options) {
  const std::string token = make_token();
  ThreadExchange exchange(world_size);
  Fabric fabric;
  fabric.endpoints.resize(static_cast<std::size_t>(world_size));
  fabric.more.resize(fabric.endpoints.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      TcpListener listener = TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw();
      const std::string address = "127.0.0.1:" + std::to_string(listener.port());
      auto lanes =
          connect_mesh(std::move(listener), {.rank = rank,
                                             .world_size = world_size,
                                             .address = address,
                                             .exchange = exchange.of(rank),
                                             .token = token,
                                             .job_id = "test",
                                             .lanes = options.lanes,
                                             .kept_bytes = options.kept_bytes,
                                             .transport = options.transport,
                                             .host = "host " + std::to_string(rank % options.hosts),
                                             .timeout = kTestTimeout,
                                             .wait = options.wait,
                                             .describe = describe_for_tests,
                                             .logger = {}});
      ASSERT_TRUE(lanes.ok()) << lanes.status().to_string();
      const auto index = static_cast<std::size_t>(rank);
      fabric.endpoints[index] = std::move(lanes->front());
      lanes->erase(lanes->begin());
      fabric.more[index] = *std::move(lanes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!std::ranges::all_of(fabric.endpoints, [](const auto& each) { return each != nullptr; })) {
    throw std::runtime_error("not all ranks are connected");
  }
  std::vector<std::vector<MeshEndpoint*>> killable(fabric.endpoints.size());
  for (std::size_t rank = 0; rank < killable.size(); ++rank) {
    killable[rank].push_back(static_cast<MeshEndpoint*>(fabric.endpoints[rank].get()));
    for (const auto& lane : fabric.more[rank]) {
      killable[rank].push_back(static_cast<MeshEndpoint*>(lane.get()));
    }
  }
  fabric.kill = [killable](int rank) {
    for (MeshEndpoint* const lane : killable[static_cast<std::size_t>(rank)]) lane->vanish();
  };
  return fabric;
}

std::string describe_for_tests(const MessageSignature& signature) {
  return "operation " + std::to_string(signature.operation) + " of " +
         std::to_string(signature.count) + " elements";
}

Transfer make_transfer(int peer, MessageTag tag, std::vector<std::byte>& data,
                       MessageSignature signature) {
  Transfer transfer;
  transfer.peer = peer;
  transfer.tag = tag;
  transfer.signature = signature;
  transfer.data = data.data();
  transfer.bytes = data.size();
  return transfer;
}

Status finish(Endpoint& endpoint, Transfer& transfer) {
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (!transfer.done()) {
    if (deadline.expired()) {
      endpoint.cancel(transfer, Status(StatusCode::kTimeout, "the test's deadline passed"));
      break;
    }
    endpoint.poll(deadline);
  }
  return transfer.status();
}

Status send(Endpoint& endpoint, int peer, MessageTag tag, std::vector<std::byte>& data,
            MessageSignature signature) {
  Transfer transfer = make_transfer(peer, tag, data, signature);
  endpoint.start_send(transfer);
  return finish(endpoint, transfer);
}

Status recv(Endpoint& endpoint, int peer, MessageTag tag, std::vector<std::byte>& data,
            MessageSignature signature) {
  Transfer transfer = make_transfer(peer, tag, data, signature);
  endpoint.start_recv(transfer);
  return finish(endpoint, transfer);
}

Status await_failure(Endpoint& endpoint) {
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (endpoint.failure().ok() && !deadline.expired()) endpoint.poll(deadline);
  return endpoint.failure();
}

Status meet(Endpoint& endpoint, std::uint64_t sequence) {
  std::vector<std::byte> nothing;
  const MessageTag tag{.sequence = sequence, .context = 99};
  for (int peer = 0; peer < endpoint.world_size(); ++peer) {
    if (peer == endpoint.rank()) continue;
    DLAUNCH_RETURN_IF_ERROR(send(endpoint, peer, tag, nothing));
  }
  for (int peer = 0; peer < endpoint.world_size(); ++peer) {
    if (peer == endpoint.rank()) continue;
    DLAUNCH_RETURN_IF_ERROR(recv(endpoint, peer, tag, nothing));
  }
  return Status();
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<std::byte> bytes(count);
  std::size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    const std::uint64_t word = generator();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  for (; at < count; ++at) bytes[at] = static_cast<std::byte>(generator());
  return bytes;
}

std::uint64_t fresh_seed() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

}  // namespace dlaunch
