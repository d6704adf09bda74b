#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/chosen_address.h"
#include "runtime/base/standard_descriptors.h"
#include "runtime/collective/signature.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/endpoint_communicator.h"
#include "runtime/comm/local_address.h"
#include "runtime/comm/words.h"
#include "runtime/comm/world_tuning.h"
#include "runtime/rendezvous/job_store.h"
#include "runtime/rendezvous/store_batch.h"
#include "transport/mesh/mesh.h"
#include "transport/tcp/listener.h"

namespace dlaunch {
namespace {

CommunicatorOptions options_for(const JobEnvironment& job) {
  return {.timeout = job.timeout,
          .reduce_order = job.reduce_in_rank_order ? ReduceOrder::kRanks : ReduceOrder::kAny};
}

// Where the other ranks reach this one's listener.
Result<std::string> own_address(const JobEnvironment& job, std::uint16_t port, Deadline deadline) {
  std::string host = "127.0.0.1";
  if (job.nodes > 1) {
    auto reached = job.interface.empty() ? local_address_towards(job.store_address, deadline)
                                         : choose_address(job.interface);
    if (!reached.ok() && !job.interface.empty())
      return reached.status().within("DLAUNCH_INTERFACE");
    if (!reached.ok()) return reached.status();
    host = *std::move(reached);
  }
  return host + ":" + std::to_string(port);
}

// Says which ranks have not come.
Status named(const Status& timed_out, Store& store, const std::vector<std::string>& keys,
             const LaneRequest& request) {
  auto values = store.try_get(keys);
  if (!values.ok()) return timed_out;
  std::vector<int> missing;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!(*values)[i].has_value()) missing.push_back(request.called[i]);
  }
  return timed_out.within("timed out after " + in_seconds(request.timeout) + " waiting for " +
                          list_of_ranks(missing));
}

// Of a rank that gives up, in the place of its texts.
constexpr std::string_view kGivenUp = "given up: ";
constexpr std::array kRounds{kFirstMeshRound, kSecondMeshRound, kTuningRound};

// How far a rank has come.
struct ExchangeProgress {
  std::size_t rounds = 0;  // those in which it has said something
  bool has_heard = false;  // of one that gives up
  bool has_failed = false;
  std::string address;  // of this rank's listener, as the others are told
};

std::string key_of(const LaneRequest& request, std::string_view round, int rank) {
  return request.name + "/" + std::string(round) + " of rank " + std::to_string(rank);
}

// Lets the others know, who would wait for this rank until their deadline, in the rounds in which
// it has said nothing yet. What it has heard of another rank they hear from that one.
Status give_up(Store& store, const LaneRequest& request, const ExchangeProgress& progress,
               Status why) {
  if (progress.has_heard) return why;
  const int rank = request.called[static_cast<std::size_t>(request.my_index)];
  const std::string text = std::string(kGivenUp) + why.to_string();
  for (std::size_t i = progress.rounds; i < kRounds.size(); ++i) {
    if (!store.set(key_of(request, kRounds[i], rank), text).ok()) break;
  }
  return why;
}

Status find_given_up(const std::vector<std::string>& texts, const LaneRequest& request) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].starts_with(kGivenUp)) continue;
    return Status::about_peer(StatusCode::kUnavailable, request.called[i],
                              "gave up: " + texts[i].substr(kGivenUp.size()));
  }
  return {};
}

Result<std::vector<std::string>> exchange_texts(Store& store, const LaneRequest& request,
                                                ExchangeProgress& progress, std::string_view round,
                                                const std::string& own, Deadline deadline) {
  std::vector<std::string> keys;
  keys.reserve(request.called.size());
  for (const int rank : request.called) keys.push_back(key_of(request, round, rank));
  const auto place = std::ranges::find(kRounds, round) - kRounds.begin();
  progress.rounds = static_cast<std::size_t>(place) + 1;
  DLAUNCH_RETURN_IF_ERROR(store.set(keys[static_cast<std::size_t>(request.my_index)], own));
  auto values = store.get_all(keys, deadline);
  if (values.ok()) {
    const Status others = find_given_up(*values, request);
    progress.has_heard = !others.ok();
    DLAUNCH_RETURN_IF_ERROR(others);
  }
  if (values.status().code() != StatusCode::kTimeout) return values;
  return named(values.status(), store, keys, request);
}

// Passes texts between the ranks through the store. What it refers to outlives it.
Exchange exchange_through(Store& store, const LaneRequest& request, ExchangeProgress& progress) {
  return [&](std::string_view round, const std::string& own, Deadline deadline) {
    auto texts = exchange_texts(store, request, progress, round, own, deadline);
    progress.has_failed = !texts.ok();
    return texts;
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

Result<Lanes> connect_lanes(const JobEnvironment& job, const Logger& logger, Store& store,
                            const LaneRequest& request, ExchangeProgress& progress,
                            Deadline deadline) {
  auto listener =
      TcpListener::open(job.nodes > 1 ? TcpListener::Bind::kAny : TcpListener::Bind::kLoopback);
  if (!listener.ok()) return give_up(store, request, progress, listener.status());
  auto address = own_address(job, listener->port(), deadline);
  if (!address.ok()) return give_up(store, request, progress, address.status());
  MeshOptions options;
  options.rank = request.my_index;
  options.world_size = static_cast<int>(request.members.size());
  progress.address = *std::move(address);
  options.address = progress.address;
  options.exchange = exchange_through(store, request, progress);
  options.token = job.token;
  options.job_id = job.job_id + "/" + job.store_prefix;  // with its attempt, on several nodes
  options.lanes = kCommunicatorLanes;
  options.transport = job.transport;
  options.timeout = deadline.remaining();
  options.wait = WaitPolicy::of_host(job.local_world_size, job.local_cores);
  options.cores = job.local_cores;
  options.describe = describe_signature;
  options.logger = logger;
  auto lanes = connect_mesh(*std::move(listener), options);
  if (lanes.ok()) return lanes;
  // An exchange calls the ranks as their callers do, all else by their new numbers.
  const Status& why = lanes.status();
  return give_up(store, request, progress, progress.has_failed ? why : request.part.explain(why));
}

// What all ranks have said is of no use any more.
StoreBatch removal_of_texts(const LaneRequest& request, const ExchangeProgress& progress) {
  StoreBatch batch;
  for (std::size_t i = 0; i < progress.rounds; ++i) {
    for (const int rank : request.called) batch.remove(key_of(request, kRounds[i], rank));
  }
  return batch;
}

LaneFactory factory_for(const JobEnvironment& job, const Logger& logger,
                        const std::shared_ptr<Activity>& activity) {
  return [job, logger, activity](const LaneRequest& request) -> Result<ConnectedLanes> {
    const Deadline deadline = Deadline::after(request.timeout);
    auto opened = connect_job_store(job, activity, deadline);
    if (!opened.ok()) return opened.status();
    const std::shared_ptr<TcpStore> store = *std::move(opened);
    ExchangeProgress progress;
    auto lanes = connect_lanes(job, logger, *store, request, progress, deadline);
    if (!lanes.ok()) return lanes.status();
    ConnectedLanes connected{.lanes = *std::move(lanes)};
    if (request.my_index == 0) {
      connected.tidy_up = [store, removal = removal_of_texts(request, progress),
                           timeout = request.timeout] {
        (void)store->run(removal, Deadline::after(timeout));  // else they stay, to nobody's harm
      };
    }
    return connected;
  };
}

Result<std::unique_ptr<Communicator>> connect_ranks(const JobEnvironment& job, const Logger& logger,
                                                    const std::shared_ptr<Activity>& activity) {
  const Deadline deadline = Deadline::after(job.timeout);
  auto store = connect_job_store(job, activity, deadline);
  if (!store.ok()) return store.status();
  // A program may connect the world several times; all ranks do so in the same order.
  auto generation = (*store)->add("world/connects of rank " + std::to_string(job.rank), 1);
  if (!generation.ok()) return generation.status();
  CommunicatorOptions options = options_for(job);
  options.name = "world/" + std::to_string(*generation);
  options.activity = activity;
  options.make_lanes = factory_for(job, logger, activity);
  std::vector<int> everybody(static_cast<std::size_t>(job.world_size));
  std::iota(everybody.begin(), everybody.end(), 0);
  const LaneRequest request{.members = everybody,
                            .called = everybody,
                            .my_index = job.rank,
                            .name = options.name,
                            .timeout = job.timeout};
  ExchangeProgress progress;
  auto lanes = connect_lanes(job, logger, **store, request, progress, deadline);
  if (!lanes.ok()) return lanes.status();
  const Exchange exchange = exchange_through(**store, request, progress);
  // It also sees to it that this returns only once everybody is connected.
  auto tuning =
      agree_on_tuning(*lanes->front(), job.local_cores, job.cost_model, exchange, deadline);
  if (!tuning.ok()) return tuning.status();
  options.tuning = *std::move(tuning);
  const std::string transports = describe_transports(*lanes->front());
  auto world = make_communicator(*std::move(lanes), options);
  if (!world.ok()) return world.status();
  logger->info("rank {} of {} connected: {}; its address is {}", job.rank, job.world_size,
               transports, progress.address);
  return world;
}

}  // namespace

Result<std::unique_ptr<Communicator>> connect_world() {
  // Else what is written to a closed stdout would go to a descriptor of the communicator.
  open_standard_descriptors();
  auto job = read_job_environment();
  if (!job.ok()) return job.status();
  return connect_world(*job, make_logger("comm"));
}

Result<std::unique_ptr<Communicator>> connect_world(const JobEnvironment& job, Logger logger,
                                                    ReadyWhen ready) {
  const std::shared_ptr<Activity> activity = Activity::open(job.activity, job.local_rank);
  if (activity != nullptr) activity->set_joins_world();
  if (logger == nullptr) logger = make_null_logger();
  auto world = job.world_size == 1 ? make_communicator(lanes_of_one(), options_for(job))
                                   : connect_ranks(job, logger, activity);
  if (world.ok() && activity != nullptr && ready == ReadyWhen::kConnected) activity->set_ready();
  if (world.ok()) return world;
  return world.status().within("connecting rank " + std::to_string(job.rank) + " of " +
                               std::to_string(job.world_size));
}

}  // namespace dlaunch
