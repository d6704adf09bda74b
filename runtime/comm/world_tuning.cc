#include "runtime/comm/world_tuning.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/base/json_reader.h"
#include "transport/mesh/introduction.h"

namespace dlaunch {
namespace {

// What a rank says about itself.
struct Standpoint {
  std::string host;
  int cores = 1;
  int sharing = 0;    // other ranks with which it shares memory
  std::string model;  // JSON; of rank 0
  std::string error;  // why there is no model

  std::string encode() const {
    return nlohmann::json{
        {"host", host}, {"cores", cores}, {"sharing", sharing}, {"model", model}, {"error", error}}
        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
};

Standpoint own_standpoint(const Endpoint& endpoint, int local_cores,
                          const std::string& model_file) {
  Standpoint own;
  auto host = host_identity();
  // An unknown host is one of its own.
  own.host = host.ok() ? *std::move(host) : "rank " + std::to_string(endpoint.rank());
  own.cores = local_cores;
  for (int peer = 0; peer < endpoint.world_size(); ++peer) {
    if (peer != endpoint.rank() && std::strcmp(endpoint.transport_name(peer), "shm") == 0) {
      ++own.sharing;
    }
  }
  if (endpoint.rank() != 0) return own;
  try {
    own.model = to_json(model_file.empty() ? CostModel() : read_cost_model(model_file));
  } catch (const ConfigError& error) {
    own.error = error.what();
  }
  return own;
}

Standpoint decode(const std::string& text) {
  Standpoint rank;
  read_json_object(parse_json(text, "tuning"), "tuning", [&](JsonObject& object) {
    rank.host = object.text("host", "");
    rank.cores = static_cast<int>(object.integer("cores", 1, {1, 1 << 20}));
    rank.sharing = static_cast<int>(object.integer("sharing", 0, {0, 1 << 20}));
    rank.model = object.text("model", "");
    rank.error = object.text("error", "");
  });
  return rank;
}

Topology topology_of(const std::vector<Standpoint>& ranks) {
  Topology topology{.ranks = static_cast<int>(ranks.size()),
                    .cores_per_host = ranks.front().cores,
                    .shared_memory = true};
  std::map<std::string, int> hosts;
  std::map<std::string, int> ranks_of_host;
  for (const Standpoint& rank : ranks) {
    topology.host_of_rank.push_back(
        hosts.try_emplace(rank.host, static_cast<int>(hosts.size())).first->second);
    topology.cores_per_host = std::min(topology.cores_per_host, rank.cores);
    ++ranks_of_host[rank.host];
  }
  for (const Standpoint& rank : ranks) {
    if (rank.sharing + 1 != ranks_of_host[rank.host]) topology.shared_memory = false;
  }
  return topology;
}

}  // namespace

Result<std::shared_ptr<const Tuning>> agree_on_tuning(const Endpoint& endpoint, int local_cores,
                                                      const std::string& model_file,
                                                      const Exchange& exchange, Deadline deadline) {
  auto texts =
      exchange(kTuningRound, own_standpoint(endpoint, local_cores, model_file).encode(), deadline);
  if (!texts.ok()) return texts.status();
  std::vector<Standpoint> ranks;
  try {
    for (const std::string& text : *texts) ranks.push_back(decode(text));
    if (!ranks.front().error.empty()) {
      return Status(StatusCode::kInvalidArgument, "DLAUNCH_COST_MODEL: " + ranks.front().error);
    }
    return std::make_shared<const Tuning>(
        Tuning{topology_of(ranks), parse_cost_model(ranks.front().model, "cost model of rank 0")});
  } catch (const ConfigError& error) {
    return Status(StatusCode::kProtocol, error.what());
  }
}

}  // namespace dlaunch
