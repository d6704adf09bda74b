// A NodeCoordinator for tests: what happens is told to it, and what it writes is read back.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "launcher/nodes/node_coordinator.h"

namespace dlaunch::testing {

class ToldCoordinator : public ::testing::Test {
 protected:
  using Action = VerdictRecord::Action;
  using How = EndedRecord::How;

  /// Of what is started from now on.
  void advise(const std::string& advice) { advice_ = advice; }
  void start(int least, int most, int max_restarts = 0) {
    nodes_ = std::to_string(least);
    if (most != least) nodes_ += ":" + std::to_string(most);
    coordinator_.emplace(NodeCoordinator::Options{.least = least,
                                                  .most = most,
                                                  .nodes = nodes_,
                                                  .version = "1.0",
                                                  .job_id = "job",
                                                  .host_id = "1",
                                                  .advice = [advice = advice_] { return advice; },
                                                  .max_restarts = max_restarts,
                                                  .restart_delay = std::chrono::seconds(1),
                                                  .join_timeout = std::chrono::seconds(60),
                                                  .settle = std::chrono::seconds(2)},
                         now_);
  }
  MemberRecord member(const std::string& id, int ranks = 1, int node_rank = -1) const {
    return {.id = id,
            .host = "host-" + id,
            .pid = 7,
            .version = "1.0",
            .nodes = nodes_,
            .node_rank = node_rank,
            .ranks = ranks,
            .address = "10.0.0." + id,
            .store = "10.0.0.1",
            .master_port = 4000};
  }
  void come(const MemberRecord& member) {
    coordinator_->member_came(member, now_);
    read();
  }
  /// Of the members that have come.
  void lives(const std::string& id) {
    now_ += std::chrono::milliseconds(1);
    coordinator_->member_lived(id, now_);
    coordinator_->time_passed(now_);
    read();
  }
  void leave(const std::string& id, const std::string& why = "its dlaunch has gone") {
    coordinator_->member_left(id, why, now_, now_);
    read();
  }
  void fall_silent(const std::string& id) {
    coordinator_->member_silent(id, "no sign of life for 4.0 s", now_, now_);
    read();
  }
  void end(const std::string& id, const EndedRecord& ended) { end_in(round().number, id, ended); }
  void end_in(int round, const std::string& id, const EndedRecord& ended) {
    coordinator_->member_ended(round, id, ended, now_);
    read();
  }
  void pass(std::chrono::nanoseconds time) {
    now_ += std::chrono::duration_cast<NodeCoordinator::Time::duration>(time);
    coordinator_->time_passed(now_);
    read();
  }
  static EndedRecord failed(int rank, int exit_code,
                            std::chrono::nanoseconds age = std::chrono::seconds(0),
                            bool got_ready = true) {
    return {.how = How::kFailed,
            .failure = serialize({.rank = rank, .host = "host", .exit_code = exit_code}),
            .age_ns = age.count(),
            .got_ready = got_ready,
            .exit_code = exit_code};
  }
  static EndedRecord interrupted(int exit_code = 143) {
    return {.how = How::kSignal, .exit_code = exit_code, .error = "ended by SIGTERM"};
  }
  static EndedRecord stopped() { return {.how = How::kStopped, .got_ready = true}; }

  bool wrote(std::string_view key) const { return state_.contains(std::string(key)); }
  std::string text(const std::string& key) const {
    const auto found = state_.find(key);
    return found == state_.end() ? "(nothing)" : found->second;
  }
  RoundRecord round() const {
    return parse_record<RoundRecord>(text(std::string(node_keys::kRound))).value_or_throw();
  }
  StopRecord stop() const {
    return parse_record<StopRecord>(text(std::string(node_keys::kStop))).value_or_throw();
  }
  VerdictRecord verdict() const {
    return parse_record<VerdictRecord>(text(std::string(node_keys::kVerdict))).value_or_throw();
  }
  std::string ranks() const {  // "b a c": the nodes of the round in their order
    std::string ids;
    for (const auto& node : round().nodes) ids += (ids.empty() ? "" : " ") + node.id;
    return ids;
  }

  NodeCoordinator::Time now_;
  std::optional<NodeCoordinator> coordinator_;

 private:
  void read() {
    for (auto& write : coordinator_->take_writes()) {
      if (write.value) {
        state_[write.key] = *write.value;
      } else {
        state_.erase(write.key);
      }
    }
  }
  std::string advice_;
  std::string nodes_;
  std::map<std::string, std::string> state_;
};

}  // namespace dlaunch::testing
