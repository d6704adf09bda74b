#include "runtime/base/job_environment.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "runtime/base/token.h"
#include "runtime/base/token_file.h"
#include "runtime/base/usable_cores.h"

namespace dlaunch {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

Status invalid(const std::string& name, const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "environment variable " + name + ": " + what);
}

// The integer in `name`, within [low, high].
Result<int> read_integer(const char* name, int low, int high) {
  const auto text = variable(name);
  if (!text) return invalid(name, "not set, but DLAUNCH_STORE is; start the program with dlaunch");
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    return invalid(name, "'" + *text + "' is not a number from " + std::to_string(low) + " to " +
                             std::to_string(high));
  }
  return value;
}

Result<std::string> read_token() {
  if (const auto hex = variable("DLAUNCH_TOKEN")) {
    auto token = token_from_hex(*hex);
    if (!token.ok()) return token.status().within("environment variable DLAUNCH_TOKEN");
    return token;
  }
  const auto path = variable("DLAUNCH_TOKEN_FILE");
  if (!path) return invalid("DLAUNCH_TOKEN", "not set, and neither is DLAUNCH_TOKEN_FILE");
  auto token = read_token_file(*path);
  if (!token.ok()) return token.status().within("environment variable DLAUNCH_TOKEN_FILE");
  return token;
}

Result<TransportChoice> read_transport() {
  const std::string text = variable("DLAUNCH_TRANSPORT").value_or("");
  if (const auto choice = parse_transport_choice(text)) return *choice;
  return invalid("DLAUNCH_TRANSPORT", "'" + text + "' is none of auto, tcp and shm");
}

Result<bool> read_reduce_in_rank_order() {
  const std::string text = variable("DLAUNCH_REDUCE_ORDER").value_or("");
  if (text == "ranks") return true;
  if (text.empty() || text == "any") return false;
  return invalid("DLAUNCH_REDUCE_ORDER", "'" + text + "' is neither any nor ranks");
}

constexpr int kMostRanks = 1 << 20;

// Started as one of several by something else than dlaunch, each rank would be a world of its own
// and do the whole job: that is never meant.
Status check_alone() {
  for (const char* name :
       {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const std::string size = variable(name).value_or("1");
    if (size == "1") continue;
    return invalid(name, "'" + size +
                             "', but DLAUNCH_STORE is not set: the ranks were started without "
                             "dlaunch; start them with it (dlaunch --nproc), or connect them with "
                             "connect_mpi_world() (docs/mpi.md), or unset it for a world of one");
  }
  return Status();
}

}  // namespace

Result<std::chrono::nanoseconds> read_timeout() {
  const auto text = variable("DLAUNCH_TIMEOUT");
  if (!text) return std::chrono::nanoseconds(kDefaultTimeout);
  double seconds = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, seconds);
  constexpr double kLongest = 30.0 * 24 * 3600;
  if (error != std::errc() || stop != end || !(seconds > 0) || seconds > kLongest) {
    return invalid("DLAUNCH_TIMEOUT",
                   "'" + *text + "' is not a number of seconds above 0 and at most 30 days");
  }
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

Result<JobEnvironment> read_job_environment() {
  JobEnvironment job;
  auto timeout = read_timeout();
  if (!timeout.ok()) return timeout.status();
  job.timeout = *timeout;
  auto transport = read_transport();
  if (!transport.ok()) return transport.status();
  job.transport = *transport;
  auto in_rank_order = read_reduce_in_rank_order();
  if (!in_rank_order.ok()) return in_rank_order.status();
  job.reduce_in_rank_order = *in_rank_order;
  job.interface = variable("DLAUNCH_INTERFACE").value_or("");
  job.cost_model = variable("DLAUNCH_COST_MODEL").value_or("");

  const auto store = variable("DLAUNCH_STORE");
  if (!store || store->empty()) {
    DLAUNCH_RETURN_IF_ERROR(check_alone());
    job.local_cores = cores_with_time();
    return job;
  }
  job.store_address = *store;
  job.store_prefix = variable("DLAUNCH_STORE_PREFIX").value_or("");

  const auto read = [](const char* name, int low, int high, int& into) -> Status {
    auto value = read_integer(name, low, high);
    if (value.ok()) into = *value;
    return value.status();
  };
  DLAUNCH_RETURN_IF_ERROR(read("WORLD_SIZE", 1, kMostRanks, job.world_size));
  DLAUNCH_RETURN_IF_ERROR(read("RANK", 0, job.world_size - 1, job.rank));
  DLAUNCH_RETURN_IF_ERROR(read("LOCAL_WORLD_SIZE", 1, job.world_size, job.local_world_size));
  DLAUNCH_RETURN_IF_ERROR(read("LOCAL_RANK", 0, job.local_world_size - 1, job.local_rank));
  if (variable("DLAUNCH_NODES")) {
    DLAUNCH_RETURN_IF_ERROR(read("DLAUNCH_NODES", 1, kMostRanks, job.nodes));
  }
  if (variable("DLAUNCH_LOCAL_CORES")) {
    DLAUNCH_RETURN_IF_ERROR(read("DLAUNCH_LOCAL_CORES", 1, kMostRanks, job.local_cores));
  } else {
    job.local_cores = cores_with_time();
  }
  job.job_id = variable("DLAUNCH_JOB_ID").value_or("");
  job.activity = variable("DLAUNCH_ACTIVITY").value_or("");
  auto token = read_token();
  if (!token.ok()) return token.status();
  job.token = *std::move(token);
  return job;
}

}  // namespace dlaunch
