#include "transport/mesh/mesh.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "runtime/base/descriptor_room.h"
#include "runtime/base/token.h"
#include "transport/mesh/introduction.h"
#include "transport/mesh/mesh_endpoint.h"
#include "transport/shm/bootstrap.h"
#include "transport/tcp/hello.h"
#include "transport/tcp/socket_mesh.h"

namespace dlaunch {
namespace {

using Endpoints = std::vector<std::unique_ptr<Endpoint>>;
using MeshEndpoints = std::vector<std::unique_ptr<MeshEndpoint>>;

// So many of the last lanes show the others that a peer is gone. Every message on these costs a
// little more for that (0.1 us for each lane that watches). Of a communicator they are the least
// used; one ends before that lane on which a rank that leaves may wait for its messages to come,
// and the other carries so little that its end is never held up.
constexpr std::size_t kWitnesses = 2;

Status check_options(const MeshOptions& options) {
  const auto refuse = [](std::string why) {
    return Status(StatusCode::kInvalidArgument, "connect_mesh: " + std::move(why));
  };
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return refuse("rank " + std::to_string(options.rank) + " of a world of " +
                  std::to_string(options.world_size));
  }
  if (options.lanes < 1) return refuse(std::to_string(options.lanes) + " lanes");
  if (options.world_size == 1) return Status();
  if (!options.exchange) return refuse("no exchange between the ranks");
  if (options.token.size() != kTokenBytes) return refuse("the token has the wrong length");
  return Status();
}

class Mesh {
 public:
  explicit Mesh(const MeshOptions& options)
      : options_(options), deadline_(Deadline::after(options.timeout)) {}

  /// The ranks tell each other where they are.
  Status introduce();
  /// Those of one host try to share memory.
  Status share_memory();
  /// Every rank has room for the descriptors that it will need, or none of them begins.
  Status check_room() const;
  Result<Endpoints> connect(TcpListener listener);

 private:
  template <typename Value>
  Status exchange(std::string_view round, const Value& own, std::vector<Value>& all);
  Introduction introduction();
  std::vector<int> ranks_of_host(const std::string& host) const;
  bool anybody_shares() const;
  SharingOutcome join_or_lead();
  SharingOutcome not_joined(const Status& why) const;
  void complete_group(const std::vector<SharingOutcome>& outcomes);
  bool core_each(std::span<const int> ranks) const;
  WaitPolicy wait_policy() const;
  bool shares(int a, int b) const;
  Result<MeshEndpoints> make_endpoints(const std::vector<std::vector<Descriptor>>& sockets) const;
  Status check_demands() const;
  std::map<std::string, int> members_of_hosts() const;
  const Introduction& of(int rank) const { return introductions_[static_cast<std::size_t>(rank)]; }

  const MeshOptions& options_;
  Deadline deadline_;
  LocalSocket local_listener_;
  std::vector<Introduction> introductions_;  // by rank
  std::vector<SharingOutcome> outcomes_;     // by rank; empty: nobody tried

  // Of this rank's host.
  std::optional<MemoryProbe> probe_;  // others read it until they have joined
  std::unique_ptr<GroupLeader> leader_;
  std::string refusal_;               // the leader's
  std::shared_ptr<HostGroup> group_;  // while this rank shares memory
};

template <typename Value>
Status Mesh::exchange(std::string_view round, const Value& own, std::vector<Value>& all) {
  Result<std::vector<std::string>> texts = options_.exchange(round, own.encode(), deadline_);
  if (!texts.ok()) return texts.status();
  if (texts->size() != static_cast<std::size_t>(options_.world_size)) {
    return Status(StatusCode::kInvalidArgument, "connect_mesh: the exchange gave " +
                                                    std::to_string(texts->size()) + " texts for " +
                                                    std::to_string(options_.world_size) + " ranks");
  }
  for (const std::string& text : *texts) {
    Result<Value> value = Value::decode(text);
    if (!value.ok()) return value.status();
    all.push_back(*std::move(value));
  }
  return Status();
}

Introduction Mesh::introduction() {
  Introduction own{.address = options_.address,
                   .demands_sharing = options_.transport == TransportChoice::kSharedMemory,
                   .cores = options_.wait.core_each() ? options_.cores : 0,
                   .room = descriptor_room()};
  if (options_.transport == TransportChoice::kTcp) {
    own.obstacle = "it uses TCP only (DLAUNCH_TRANSPORT)";
    return own;
  }
  Result<std::string> host =
      options_.host.empty() ? host_identity() : Result<std::string>(options_.host);
  if (!open_process(::getpid()).is_open()) {  // forbidden in some sandboxes
    own.obstacle = Status::from_errno("pidfd_open", errno).to_string();
    return own;
  }
  Result<LocalSocket> listener = LocalSocket::listen();
  Result<std::string> socket = listener.ok() ? listener->name() : listener.status();
  if (!host.ok() || !socket.ok()) {
    own.obstacle = (host.ok() ? socket : host).status().to_string();
    return own;
  }
  own.host = *std::move(host);
  own.socket = *std::move(socket);
  local_listener_ = *std::move(listener);
  return own;
}

// Those of different builds would take each other's calls for mistakes of the program.
Status Mesh::introduce() {
  DLAUNCH_RETURN_IF_ERROR(exchange(kFirstMeshRound, introduction(), introductions_));
  for (int rank = 1; rank < options_.world_size; ++rank) {
    if (of(rank).build == of(0).build) continue;
    return Status(StatusCode::kUnavailable,
                  "rank " + std::to_string(rank) + " is built with dlaunch " + of(rank).build +
                      ", rank 0 with " + of(0).build + ": build all with the same");
  }
  return Status();
}

std::vector<int> Mesh::ranks_of_host(const std::string& host) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (!host.empty() && of(rank).host == host) ranks.push_back(rank);
  }
  return ranks;
}

bool Mesh::anybody_shares() const {
  std::vector<std::string> hosts;
  for (const Introduction& each : introductions_) {
    if (!each.host.empty()) hosts.push_back(each.host);
  }
  std::sort(hosts.begin(), hosts.end());
  return std::adjacent_find(hosts.begin(), hosts.end()) != hosts.end();
}

Status Mesh::share_memory() {
  if (!anybody_shares()) return check_demands();
  const SharingOutcome own = join_or_lead();
  // A leader goes on letting members in while it waits for what they have to say.
  DLAUNCH_RETURN_IF_ERROR(exchange(kSecondMeshRound, own, outcomes_));
  if (own.joined) complete_group(outcomes_);
  probe_.reset();
  local_listener_.close();
  return check_demands();
}

SharingOutcome Mesh::not_joined(const Status& why) const {
  if (options_.logger != nullptr) {
    options_.logger->warn("rank {} shares no memory: {}", options_.rank, why.to_string());
  }
  return {.obstacle = why.to_string()};
}

SharingOutcome Mesh::join_or_lead() {
  const Introduction& own = of(options_.rank);
  if (own.host.empty()) return {.obstacle = own.obstacle};
  GroupIdentity identity{.token = options_.token,
                         .job = hash_job(options_.job_id),
                         .rank = options_.rank,
                         .world_size = options_.world_size,
                         .lanes = options_.lanes,
                         .candidates = ranks_of_host(own.host)};
  if (identity.candidates.size() == 1) return {};
  const int first = identity.candidates.front();
  const bool leads = first == options_.rank;
  probe_.emplace(leads ? MemoryProbe::kTimedBytes : MemoryProbe::kWordBytes);
  if (leads) {
    auto leader = GroupLeader::start(std::move(local_listener_), std::move(identity), *probe_);
    if (!leader.ok()) return not_joined(leader.status());
    leader_ = *std::move(leader);
    return {.joined = true, .readable = true, .pays = true};
  }
  local_listener_.close();
  // Half of what is left: without it TCP still has time to connect.
  auto joined =
      join_group(of(first).socket, identity, *probe_, Deadline::after(deadline_.remaining() / 2));
  if (!joined.ok()) {
    return not_joined(joined.status().within("segment of rank " + std::to_string(first)));
  }
  group_ = std::make_shared<HostGroup>(std::move(joined->group));
  return {.joined = true, .readable = joined->readable, .pays = joined->pays};
}

// Everybody has told what has come of it.
void Mesh::complete_group(const std::vector<SharingOutcome>& outcomes) {
  if (leader_ != nullptr) {
    group_ = std::make_shared<HostGroup>(std::move(*leader_).finish());
    refusal_ = leader_->refusal();
    leader_.reset();
  }
  const std::vector<int> candidates = ranks_of_host(of(options_.rank).host);
  group_->core_each = core_each(candidates);
  group_->members_readable = true;
  for (std::size_t slot = 0; slot < candidates.size(); ++slot) {
    const int rank = candidates[slot];
    const SharingOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (!outcome.joined) {
      // The second of them has found out for all whether reading pays.
      if (slot == 1) group_->members_readable = false;
      continue;
    }
    if (!outcome.readable || !outcome.pays) group_->members_readable = false;
    if (rank == options_.rank) group_->own = static_cast<int>(group_->members.size());
    group_->members.push_back(
        {.rank = rank, .slot = static_cast<int>(slot), .pid = 0, .pidfd = {}});
  }
  const bool all = group_->members.size() == candidates.size();
  if (!all && !refusal_.empty() && options_.logger != nullptr) {
    options_.logger->warn("rank {} has refused to share memory: {}", options_.rank, refusal_);
  }
}

// Ranks of one host may see different cores, or not know of each other (two launchers). What they
// do in their memory depends on it, so they must agree: by what they all have told.
bool Mesh::core_each(std::span<const int> ranks) const {
  return std::ranges::all_of(
      ranks, [&](int rank) { return static_cast<std::size_t>(of(rank).cores) >= ranks.size(); });
}

WaitPolicy Mesh::wait_policy() const {
  const bool crowded = group_ != nullptr && !group_->core_each && options_.wait.core_each();
  return crowded ? WaitPolicy::without_cores() : options_.wait;
}

bool Mesh::shares(int a, int b) const {
  if (outcomes_.empty() || of(a).host.empty() || of(a).host != of(b).host) return false;
  return outcomes_[static_cast<std::size_t>(a)].joined &&
         outcomes_[static_cast<std::size_t>(b)].joined;
}

// A pair of which one demands shared memory must have it.
Status Mesh::check_demands() const {
  const int own = options_.rank;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const bool demanded = of(own).demands_sharing || of(rank).demands_sharing;
    if (rank == own || !demanded || shares(own, rank)) continue;
    std::string why = "they are on different hosts";
    for (const int one : {own, rank}) {
      const auto index = static_cast<std::size_t>(one);
      const std::string& obstacle = outcomes_.empty() || !of(one).obstacle.empty()
                                        ? of(one).obstacle
                                        : outcomes_[index].obstacle;
      if (!obstacle.empty()) why = "rank " + std::to_string(one) + ": " + obstacle;
    }
    if (!refusal_.empty()) why += " (refused here: " + refusal_ + ")";
    return Status(StatusCode::kUnavailable, "DLAUNCH_TRANSPORT=shm, but ranks " +
                                                std::to_string(std::min(own, rank)) + " and " +
                                                std::to_string(std::max(own, rank)) +
                                                " cannot share memory: " + why);
  }
  return Status();
}

// How many ranks share memory, by host.
std::map<std::string, int> Mesh::members_of_hosts() const {
  std::map<std::string, int> members;
  for (std::size_t rank = 0; rank < outcomes_.size(); ++rank) {
    const std::string& host = introductions_[rank].host;
    if (!host.empty() && outcomes_[rank].joined) ++members[host];
  }
  return members;
}

// A rank that runs out of them would leave the others waiting until their deadline.
Status Mesh::check_room() const {
  const std::map<std::string, int> hosts = members_of_hosts();
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const bool member = shares(rank, rank);
    const int near = member ? hosts.at(of(rank).host) : 1;
    const std::int64_t lanes = options_.lanes;
    std::int64_t needed = lanes * (2 + options_.world_size - near);  // endpoints and connections
    if (near > 1) needed += lanes * near + near;                     // doorbells; pidfds, memory
    const DescriptorRoom& room = of(rank).room;
    if (needed <= room.left()) {
      if (rank == options_.rank) raise_descriptor_limit(room.open + needed);
      continue;
    }
    return Status(
        StatusCode::kIo,
        "rank " + std::to_string(rank) + " may open " + std::to_string(room.left()) +
            " more files, but its connections to " + std::to_string(options_.world_size - 1) +
            " ranks take " + std::to_string(needed) + ": raise its hard limit (ulimit -Hn) from " +
            std::to_string(room.limit) + " to at least " + std::to_string(room.open + needed));
  }
  return Status();
}

// Those of all lanes, without ways to the peers yet. Each is told of the witnesses behind it.
Result<MeshEndpoints> Mesh::make_endpoints(
    const std::vector<std::vector<Descriptor>>& sockets) const {
  MeshEndpoints endpoints;
  for (std::size_t lane = 0; lane < sockets.size(); ++lane) {
    auto endpoint = MeshEndpoint::make(options_.rank, options_.world_size, wait_policy(),
                                       options_.describe, options_.kept_bytes);
    if (!endpoint.ok()) return endpoint.status();
    const std::size_t last = sockets.size();
    const std::size_t first = std::max(lane + 1, last - std::min(last, kWitnesses));
    for (std::size_t other = first; other < last; ++other) {
      for (int rank = 0; rank < options_.world_size; ++rank) {
        const Descriptor& socket = sockets[other][static_cast<std::size_t>(rank)];
        if (!socket.is_open()) continue;
        DLAUNCH_RETURN_IF_ERROR((*endpoint)->add_witness(rank, socket.get()));
      }
    }
    endpoints.push_back(*std::move(endpoint));
  }
  return endpoints;
}

Result<Endpoints> Mesh::connect(TcpListener listener) {
  SocketMeshOptions tcp{.rank = options_.rank,
                        .world_size = options_.world_size,
                        .lanes = options_.lanes,
                        .token = options_.token,
                        .job_id = options_.job_id,
                        .addresses = {},
                        .timeout = deadline_.remaining(),
                        .logger = options_.logger};
  tcp.addresses.resize(static_cast<std::size_t>(options_.world_size));
  for (int rank = 0; options_.world_size > 1 && rank < options_.world_size; ++rank) {
    if (rank != options_.rank && shares(options_.rank, rank)) continue;
    tcp.addresses[static_cast<std::size_t>(rank)] = of(rank).address;
  }
  auto sockets = connect_sockets(std::move(listener), tcp);
  if (!sockets.ok()) return sockets.status();
  const bool shared = group_ != nullptr && group_->members.size() > 1;
  if (shared) DLAUNCH_RETURN_IF_ERROR(group_->watch_members());
  auto made = make_endpoints(*sockets);
  if (!made.ok()) return made.status();
  Endpoints endpoints;
  for (int lane = 0; lane < options_.lanes; ++lane) {
    std::unique_ptr<MeshEndpoint>& endpoint = (*made)[static_cast<std::size_t>(lane)];
    std::vector<Descriptor>& connections = (*sockets)[static_cast<std::size_t>(lane)];
    for (int rank = 0; rank < options_.world_size; ++rank) {
      Descriptor& connection = connections[static_cast<std::size_t>(rank)];
      if (!connection.is_open()) continue;
      DLAUNCH_RETURN_IF_ERROR(endpoint->add_connection(rank, std::move(connection)));
    }
    if (shared) DLAUNCH_RETURN_IF_ERROR(endpoint->add_group(group_, lane));
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

}  // namespace

Result<Endpoints> connect_mesh(TcpListener listener, const MeshOptions& options) {
  DLAUNCH_RETURN_IF_ERROR(check_options(options));
  Mesh mesh(options);
  if (options.world_size > 1) {
    DLAUNCH_RETURN_IF_ERROR(mesh.introduce());
    DLAUNCH_RETURN_IF_ERROR(mesh.share_memory());
    DLAUNCH_RETURN_IF_ERROR(mesh.check_room());
  }
  return mesh.connect(std::move(listener));
}

}  // namespace dlaunch
