#include "launcher/nodes/node_records.h"

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

namespace dlaunch {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemberRecord, id, host, pid, version, nodes, run_id, node_rank,
                                   ranks, address, store, master_port, wants_outcomes, grace_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RoundRecord::Node, id, host, ranks, first_rank)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RoundRecord, number, job_id, nodes, world, restarts, restarted,
                                   master_address, master_port, store, outcomes, verdict_limit_ms,
                                   max_restarts, restart_delay_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EndedRecord, how, failure, age_ns, got_ready, exit_code, error,
                                   master_port, leftovers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StopRecord, number, why)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(VerdictRecord, number, action, exit_code, reason, failure, node,
                                   delay_ms, lost, missing, leftovers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LookRecord, question, round, stalled, stacks_of)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SeenRecord, ranks, lines, ended)

namespace {

constexpr int kMostOfANode = 1 << 16;  // ranks of a node, and nodes of a job
constexpr int kMostPort = 65535;

constexpr std::chrono::nanoseconds kYear = std::chrono::hours(24 * 366);

bool within(int value, int least, int most) {
  return value >= least && value <= most;
}

// A time that an option gave, which is a year at most, and a slack.
bool is_limit_ms(std::int64_t count) {
  return count >= 0 && count <= 2 * kYear / std::chrono::milliseconds(1);
}

// What is computed with must be in its range, whoever wrote it.
bool is_plausible(const MemberRecord& record) {
  return within(record.ranks, 0, kMostOfANode) && within(record.node_rank, -1, kMostOfANode) &&
         within(record.master_port, 0, kMostPort) && is_limit_ms(record.grace_ms);
}
bool is_plausible(const RoundRecord& record) {
  return within(record.master_port, 0, kMostPort) && is_limit_ms(record.verdict_limit_ms) &&
         is_limit_ms(record.restart_delay_ms) &&
         std::ranges::all_of(record.nodes, [](const RoundRecord::Node& node) {
           return within(node.ranks, 0, kMostOfANode) && node.first_rank >= 0;
         });
}
bool is_plausible(const EndedRecord& record) {
  return within(record.master_port, 0, kMostPort) && record.age_ns >= 0 &&
         record.age_ns <= kYear.count();
}
bool is_plausible(const StopRecord&) {
  return true;
}
bool is_plausible(const VerdictRecord&) {
  return true;
}
bool is_plausible(const LookRecord&) {
  return true;
}
bool is_plausible(const SeenRecord&) {
  return true;
}

template <typename T>
std::string write(const T& record) {
  // Last lines of ranks are whatever they wrote.
  return nlohmann::json(record).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string to_text(const MemberRecord& record) {
  return write(record);
}
std::string to_text(const RoundRecord& record) {
  return write(record);
}
std::string to_text(const EndedRecord& record) {
  return write(record);
}
std::string to_text(const StopRecord& record) {
  return write(record);
}
std::string to_text(const VerdictRecord& record) {
  return write(record);
}
std::string to_text(const LookRecord& record) {
  return write(record);
}
std::string to_text(const SeenRecord& record) {
  return write(record);
}

template <typename T>
Result<T> parse_record(std::string_view text) {
  try {
    bool whole = true;  // a fraction is none of our numbers, and json would cut it to fit
    using Event = nlohmann::json::parse_event_t;
    const auto json = nlohmann::json::parse(text, [&](int, Event, const nlohmann::json& value) {
      whole = whole && !value.is_number_float();
      return true;
    });
    if (whole) {
      T record = json.template get<T>();
      if (is_plausible(record)) return record;
    }
    return Status(StatusCode::kProtocol, "a node's record: a number is out of range");
  } catch (const nlohmann::json::exception& error) {
    return Status(StatusCode::kProtocol, std::string("a node's record: ") + error.what());
  }
}

template Result<MemberRecord> parse_record<MemberRecord>(std::string_view text);
template Result<RoundRecord> parse_record<RoundRecord>(std::string_view text);
template Result<EndedRecord> parse_record<EndedRecord>(std::string_view text);
template Result<StopRecord> parse_record<StopRecord>(std::string_view text);
template Result<VerdictRecord> parse_record<VerdictRecord>(std::string_view text);
template Result<LookRecord> parse_record<LookRecord>(std::string_view text);
template Result<SeenRecord> parse_record<SeenRecord>(std::string_view text);

}  // namespace dlaunch
