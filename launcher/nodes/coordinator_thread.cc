#include "launcher/nodes/coordinator_thread.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/start_thread.h"

namespace dlaunch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Between two looks at the clock while nothing happens.
constexpr milliseconds kTurn{100};
// The store does not answer.
constexpr std::chrono::seconds kLate{2};
constexpr milliseconds kCheckInterval{500};
constexpr std::chrono::seconds kFarewell{3};
constexpr std::chrono::seconds kLongestFarewell{30};  // for those that are silent
// Keys that a round has left are removed in parts of so many, each in so much time.
constexpr std::size_t kRemovedTogether = 1024;
constexpr std::chrono::seconds kRemovalLimit{3};

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

CoordinatorThread::CoordinatorThread(std::unique_ptr<TcpStore> store,
                                     NodeCoordinator::Options options,
                                     std::function<void(const std::string&)> on_failure)
    : store_(std::move(store)),
      longest_silence_(options.longest_silence),
      host_id_(options.host_id),
      coordinator_(std::move(options), Clock::now()),
      last_check_(Clock::now()),
      next_check_(last_check_),
      on_failure_(std::move(on_failure)),
      thread_(start_thread([this] { run(); })) {}

CoordinatorThread::~CoordinatorThread() {
  leaving_ = true;
  thread_.join();
}

// Without it nobody would decide any more: the node that has the store is to end.
void CoordinatorThread::run() {
  try {
    coordinate();
  } catch (const std::exception& error) {
    on_failure_(error.what());
  }
}

void CoordinatorThread::coordinate() {
  std::uint64_t revision = 0;
  std::optional<Time> farewell;
  while (true) {
    // Asked first: what this node said before it leaves is then among what is seen.
    const bool leaving = leaving_;
    const Time asked = Clock::now();
    const auto seen = store_->watch(node_keys::kAll, revision, Deadline::after(kTurn));
    const Time now = Clock::now();
    if (seen.ok()) {
      revision = seen->revision;
      for (const auto& change : seen->changes) take(change, now);
    } else if (seen.status().code() != StatusCode::kTimeout) {
      // The server is this process's own: without a reason to end, it has failed.
      if (!leaving_) on_failure_(seen.status().to_string());
      return;
    } else if (now - asked > kTurn + kLate) {
      // Not even that nothing has changed: this host's address may have gone. All that is asked or
      // told now would wait in vain too.
      if (leaving_) return;
      continue;
    }
    if (now >= next_check_) check_beats(now);
    coordinator_.time_passed(now);
    if (leaving && !farewell) {
      farewell = now + kFarewell;
      coordinator_.give_up();
    }
    put_out();
    if (!farewell) continue;
    if (!coordinator_.has_members() || now >= *farewell + kLongestFarewell) return;
    if (now >= *farewell && !may_be_silent(now)) return;
  }
}

void CoordinatorThread::take(const StoreChanges::Change& change, Time now) {
  std::string_view key = change.key;
  if (take_prefix(key, node_keys::kMember)) {
    const std::string id(key);
    if (!change.value) {
      coordinator_.member_left(id, "its dlaunch has gone", last_lived(id, now), now);
      beats_.erase(id);
      return;
    }
    const auto member = parse_record<MemberRecord>(*change.value);
    if (!member.ok()) {
      return coordinator_.turn_away(id, "node " + id + ": " + member.status().to_string());
    }
    beats_[id] = {.seen = now, .lived = now};
    coordinator_.member_came(*member, now);
  } else if (take_prefix(key, node_keys::kEnded) && change.value) {
    const std::size_t slash = key.find('/');
    int round = -1;
    std::from_chars(key.data(), key.data() + std::min(slash, key.size()), round);
    const auto ended = parse_record<EndedRecord>(*change.value);
    if (slash == std::string_view::npos) return;
    const std::string id(key.substr(slash + 1));
    if (ended.ok()) return coordinator_.member_ended(round, id, *ended, now);
    // It will not say it again, and all would wait.
    coordinator_.member_left(id, ended.status().to_string(), now, now);
  }
}

// Of a node whose dlaunch has gone. Its ranks may have gone a moment before.
CoordinatorThread::Time CoordinatorThread::last_lived(const std::string& id, Time now) const {
  const auto beat = beats_.find(id);
  return beat == beats_.end() ? now : beat->second.lived;
}

void CoordinatorThread::check_beats(Time now) {
  next_check_ = now + kCheckInterval;
  const auto entries = store_->list(node_keys::kBeats);
  if (!entries.ok()) return;
  for (const StoreEntry& entry : *entries) {
    const auto beat = beats_.find(entry.key.substr(node_keys::kBeats.size()));
    if (beat == beats_.end() || beat->second.revision == entry.revision) continue;
    beat->second = {.revision = entry.revision, .seen = now, .lived = last_check_};
    coordinator_.member_lived(beat->first, last_check_);
  }
  // This host stood still, and maybe all did: they have not been silent where nobody listened.
  const bool was_deaf = now - last_check_ > longest_silence_ / 2;
  last_check_ = now;
  for (auto& [id, beat] : beats_) {
    if (was_deaf) beat.seen = now;
    if (beat.silent || now - beat.seen <= longest_silence_) continue;
    const auto silence = std::chrono::duration<double>(now - beat.seen).count();
    char text[64];
    std::snprintf(text, sizeof(text), "no sign of life for %.1f s", silence);
    beat.silent = true;
    coordinator_.member_silent(id, text, beat.lived, now);
  }
}

// Some other node may be stopped, or cut off for a moment, and still come back for its verdict.
bool CoordinatorThread::may_be_silent(Time now) const {
  return std::ranges::any_of(beats_, [&](const auto& each) {
    const auto& [id, beat] = each;
    return id != host_id_ && !beat.silent && now - beat.seen > kLate;
  });
}

void CoordinatorThread::put_out() {
  for (NodeCoordinator::Write& write : coordinator_.take_writes()) {
    if (!write.value && write.key.ends_with('/')) {
      unneeded_.push_back(write.key);
    } else {
      unwritten_.push_back(std::move(write));
    }
  }
  // What the store does not take, it is told again in the next turn. One that does not answer would
  // cost a limit for each.
  for (; !unwritten_.empty(); unwritten_.pop_front()) {
    const NodeCoordinator::Write& write = unwritten_.front();
    const Status done =
        write.value ? store_->set(write.key, *write.value) : store_->remove(write.key).status();
    if (!done.ok()) return;
  }
  remove_unneeded();
}

// A part of it, for nobody waits for that: decisions come first, and whoever watches the store can
// still be told of the removals of others.
void CoordinatorThread::remove_unneeded() {
  if (unneeded_.empty()) return;
  const auto entries = store_->list(unneeded_.front());
  if (!entries.ok()) return;
  StoreBatch batch;
  const std::size_t count = std::min(entries->size(), kRemovedTogether);
  for (std::size_t i = 0; i < count; ++i) batch.remove((*entries)[i].key);
  if (batch.size() > 0 && !store_->run(batch, Deadline::after(kRemovalLimit)).ok()) return;
  if (count == entries->size()) unneeded_.pop_front();
}

}  // namespace dlaunch
