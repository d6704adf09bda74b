#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/collective/signature.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/endpoint_communicator.h"
#include "runtime/comm/local_address.h"
#include "runtime/rendezvous/tcp_store.h"
#include "transport/loopback/loopback.h"
#include "transport/mesh/mesh.h"
#include "transport/tcp/listener.h"

namespace dlaunch {
namespace {

Result<std::unique_ptr<Communicator>> world_of_one(const JobEnvironment& job) {
  std::vector<std::unique_ptr<Endpoint>> lanes;
  lanes.reserve(kCommunicatorLanes);
  for (int lane = 0; lane < kCommunicatorLanes; ++lane) {
    lanes.push_back(LoopbackNetwork(1, describe_signature).endpoint(0));
  }
  return make_communicator(std::move(lanes), {.timeout = job.timeout});
}

// Where the other ranks reach this one's listener.
Result<std::string> own_address(const JobEnvironment& job, std::uint16_t port) {
  std::string host = "127.0.0.1";
  if (job.nodes > 1) {
    auto reached = local_address_towards(job.store_address);
    if (!reached.ok()) return reached.status();
    host = *std::move(reached);
  }
  return host + ":" + std::to_string(port);
}

// Passes texts between the ranks through the store, under keys that begin with `prefix`.
Exchange exchange_through(Store& store, std::string prefix, int rank, int world_size) {
  return [&store, prefix = std::move(prefix), rank, world_size](
             std::string_view round, const std::string& own,
             Deadline deadline) -> Result<std::vector<std::string>> {
    const auto key = [&](int of) {
      return prefix + std::string(round) + " of rank " + std::to_string(of);
    };
    DLAUNCH_RETURN_IF_ERROR(store.set(key(rank), own));
    std::vector<std::string> keys;
    keys.reserve(static_cast<std::size_t>(world_size));
    for (int each = 0; each < world_size; ++each) keys.push_back(key(each));
    return store.get_all(keys, deadline);
  };
}

// "shm with 5 ranks, tcp with 2".
std::string describe_transports(const Endpoint& endpoint) {
  std::map<std::string, int> ranks;
  for (int peer = 0; peer < endpoint.world_size(); ++peer) {
    if (peer != endpoint.rank()) ++ranks[endpoint.transport_name(peer)];
  }
  std::string text;
  for (const auto& [name, count] : ranks) {
    if (!text.empty()) text += ", ";
    text += name + " with " + std::to_string(count) + (count == 1 ? " rank" : " ranks");
  }
  return text;
}

Result<std::unique_ptr<Communicator>> connect_ranks(const JobEnvironment& job,
                                                    const Logger& logger) {
  const Deadline deadline = Deadline::after(job.timeout);
  auto listener =
      TcpListener::open(job.nodes > 1 ? TcpListener::Bind::kAny : TcpListener::Bind::kLoopback);
  if (!listener.ok()) return listener.status();
  auto address = own_address(job, listener->port());
  if (!address.ok()) return address.status();
  auto store = TcpStore::connect(job.store_address, job.token, deadline);
  if (!store.ok()) return store.status().within("rendezvous store at " + job.store_address);
  // A program may connect the world several times; all ranks do so in the same order.
  auto generation = (*store)->add("world/connects of rank " + std::to_string(job.rank), 1);
  if (!generation.ok()) return generation.status();

  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  auto lanes = connect_mesh(
      *std::move(listener),
      {.rank = job.rank,
       .world_size = job.world_size,
       .address = *std::move(address),
       .exchange = exchange_through(**store, "world/" + std::to_string(*generation) + "/", job.rank,
                                    job.world_size),
       .token = job.token,
       .job_id = job.job_id,
       .lanes = kCommunicatorLanes,
       .transport = job.transport,
       .timeout = deadline.remaining(),
       .wait = WaitPolicy::of_host(job.local_world_size, cores),
       .describe = describe_signature,
       .logger = logger});
  if (!lanes.ok()) return lanes.status();
  const std::string transports = describe_transports(*lanes->front());
  auto world = make_communicator(*std::move(lanes), {.timeout = job.timeout});
  if (!world.ok()) return world.status();
  // Returns only once everybody is connected.
  DLAUNCH_RETURN_IF_ERROR((*world)->barrier());
  logger->info("rank {} of {} connected: {}", job.rank, job.world_size, transports);
  return world;
}

}  // namespace

Result<std::unique_ptr<Communicator>> connect_world() {
  auto job = read_job_environment();
  if (!job.ok()) return job.status();
  return connect_world(*job, make_logger("comm"));
}

Result<std::unique_ptr<Communicator>> connect_world(const JobEnvironment& job, Logger logger) {
  if (job.world_size == 1) return world_of_one(job);
  if (logger == nullptr) logger = make_null_logger();
  auto world = connect_ranks(job, logger);
  if (world.ok()) return world;
  return world.status().within("connecting rank " + std::to_string(job.rank) + " of " +
                               std::to_string(job.world_size));
}

}  // namespace dlaunch
