#include "tests/transport/fabric.h"

#include <cstring>
#include <ostream>
#include <thread>
#include <utility>

#include "runtime/base/token.h"
#include "transport/loopback/loopback.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/mesh.h"

namespace dlaunch {
namespace {

Fabric make_loopback(int world_size) {
  auto network = std::make_shared<LoopbackNetwork>(world_size, describe_for_tests);
  Fabric fabric;
  for (int rank = 0; rank < world_size; ++rank) fabric.endpoints.push_back(network->endpoint(rank));
  fabric.kill = [network](int rank) { network->kill(rank); };
  return fabric;
}

Fabric make_sleeping_tcp(int world_size) {
  return make_tcp_fabric(world_size, std::chrono::nanoseconds(0));
}

Fabric make_spinning_tcp(int world_size) {
  return make_tcp_fabric(world_size, std::chrono::microseconds(50));
}

}  // namespace

testing::AssertionResult is_ok(const Status& status) {
  if (status.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status.to_string();
}

void Fabric::run(const std::function<void(int, Endpoint&)>& body, int absent) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size(); ++rank) {
    if (rank != absent) threads.emplace_back([&, rank] { body(rank, (*this)[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<FabricKind> all_fabric_kinds() {
  return {
      {"loopback", make_loopback}, {"tcp", make_sleeping_tcp}, {"tcp_spinning", make_spinning_tcp}};
}

void PrintTo(const FabricKind& kind, std::ostream* out) {
  *out << kind.name;
}

Fabric make_tcp_fabric(int world_size, std::chrono::nanoseconds spin) {
  MeshOptions options{.world_size = world_size,
                      .token = make_token(),
                      .job_id = "test",
                      .timeout = kTestTimeout,
                      .spin = spin,
                      .describe = describe_for_tests};
  std::vector<TcpListener> listeners;
  for (int rank = 0; rank < world_size; ++rank) {
    listeners.push_back(TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw());
    options.addresses.push_back("127.0.0.1:" + std::to_string(listeners.back().port()));
  }
  Fabric fabric;
  fabric.endpoints.resize(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      MeshOptions own = options;
      own.rank = rank;
      const auto index = static_cast<std::size_t>(rank);
      auto lanes = connect_mesh(std::move(listeners[index]), own);
      ASSERT_TRUE(lanes.ok()) << lanes.status().to_string();
      fabric.endpoints[index] = std::move(lanes->front());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<TcpEndpoint*> killable;
  for (const auto& endpoint : fabric.endpoints) {
    killable.push_back(static_cast<TcpEndpoint*>(endpoint.get()));
  }
  fabric.kill = [killable](int rank) {
    killable[static_cast<std::size_t>(rank)]->drop_connections();
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
