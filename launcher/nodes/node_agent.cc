#include "launcher/nodes/node_agent.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "launcher/base/store_logger.h"
#include "launcher/failure/report.h"
#include "launcher/nodes/addresses.h"
#include "launcher/nodes/coordinator_thread.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/host_address.h"
#include "runtime/base/start_thread.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

constexpr auto kBeatInterval = 500ms;
constexpr auto kWatchTurn = 1s;
constexpr auto kRetry = 200ms;
constexpr auto kLookTurn = 200ms;
constexpr const char* kSameSecret =
    ": do all nodes have the same secret (--token-file, DLAUNCH_TOKEN)?";
// Of what a node says that does not depend on a round, and must not take the place of what it has
// said of one.
constexpr int kNoRound = -1;
// Between two words on what is waited for.
constexpr auto kNoticeInterval = 30s;

std::string key_in_round(std::string_view of, int round, const std::string& node) {
  return std::string(of) + std::to_string(round) + "/" + node;
}

std::string seen_key(const LookRecord& look, const std::string& node) {
  return std::string(node_keys::kSeen) + look.question + "/" + node;
}

// A question for stacks is one for the nodes that have those ranks.
bool is_asked(const LookRecord& look, const RoundRecord::Node& node) {
  if (look.stacks_of.empty()) return true;
  return std::ranges::any_of(look.stacks_of, [&](int rank) {
    return rank >= node.first_rank && rank < node.first_rank + node.ranks;
  });
}

}  // namespace

NodeAgent::NodeAgent(Options options)
    : options_(std::move(options)),
      event_descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      beat_clock_(options_.settings.longest_silence - kBeatInterval) {
  if (!event_descriptor_.is_open()) {
    throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  worker_ = start_thread([this] { guarded([this] { work(); }); });
}

NodeAgent::~NodeAgent() {
  bool joined = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    joined = joined_ && !failed_;
  }
  changed_.notify_all();
  // Tells the others, and wakes the watching thread.
  if (joined) withdraw();
  worker_.join();
  if (beats_.joinable()) beats_.join();
  if (asker_.joinable()) asker_.join();
  coordinator_.reset();
}

std::vector<NodeEvent> NodeAgent::take_events() {
  std::uint64_t count = 0;
  (void)!read(event_descriptor_.get(), &count, sizeof(count));
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void NodeAgent::report(int round, const EndedRecord& ended, const std::string& outcome) {
  // Without its place in the list of outcomes a node's end is still one.
  if (!outcome.empty()) {
    (void)store_.client->set(key_in_round(node_keys::kOutcomes, round, id()), outcome).ok();
  }
  const Status told =
      store_.client->set(key_in_round(node_keys::kEnded, round, id()), to_text(ended));
  // Where the store does not answer, the beats fail too and tell.
  if (told.code() == StatusCode::kUnavailable) fail_here(told.to_string());
}

void NodeAgent::leave(const EndedRecord& ended) {
  {
    const std::lock_guard lock(mutex_);
    if (!joined_) {
      stopping_ = true;
      last_word_ = ended;  // said as soon as it has joined, if it still does
      return;
    }
  }
  report(kNoRound, ended, "");
}

void NodeAgent::withdraw() {
  (void)store_.client->remove(std::string(node_keys::kMember) + id()).ok();
}

void NodeAgent::fall_silent() {
  const std::lock_guard lock(mutex_);
  silent_ = true;
}

std::vector<std::string> NodeAgent::outcomes(const RoundRecord& round) {
  std::vector<std::string> outcomes;
  for (const RoundRecord::Node& node : round.nodes) {
    const auto found =
        store_.client->try_get({key_in_round(node_keys::kOutcomes, round.number, node.id)});
    outcomes.push_back(found.ok() ? found->front().value_or("") : "");
  }
  return outcomes;
}

void NodeAgent::ask(const LookRecord& look, const RoundRecord& round,
                    std::chrono::nanoseconds limit) {
  std::map<std::size_t, std::string> keys;
  for (std::size_t node = 0; node < round.nodes.size(); ++node) {
    const RoundRecord::Node& other = round.nodes[node];
    if (other.id != id() && is_asked(look, other)) keys[node] = seen_key(look, other.id);
  }
  if (asker_.joinable()) asker_.join();
  {
    const std::lock_guard lock(mutex_);
    given_up_asking_ = false;
  }
  NodeAnswers none{.question = look.question, .seen = {}};
  none.seen.resize(round.nodes.size());
  try {
    asker_ = start_thread([this, look, keys, limit, answers = none]() mutable {
      guarded([&] {
        if (!keys.empty()) gather(look, keys, Deadline::after(limit), answers);
        post(std::move(answers));
      });
    });
  } catch (const std::system_error&) {
    post(std::move(none));  // no thread is left: a report must not cost the job
  }
}

void NodeAgent::gather(const LookRecord& look, const std::map<std::size_t, std::string>& keys,
                       Deadline deadline, NodeAnswers& answers) {
  const std::string own = std::string(node_keys::kLook) + id();
  std::vector<std::string> awaited;
  awaited.reserve(keys.size());
  for (const auto& [node, key] : keys) awaited.push_back(key);
  Status asked = store_.client->set(own, to_text(look));
  // In short turns, because the round may end, and this node may be leaving.
  while (asked.ok() && !deadline.expired() && !gives_up_asking()) {
    const Deadline turn = earliest(deadline, Deadline::after(kLookTurn));
    const auto come = store_.client->get_all(awaited, turn);
    if (come.status().code() != StatusCode::kTimeout) break;
  }
  const auto come = store_.client->try_get(awaited);
  if (!come.ok()) return;  // the store does not answer: what follows would wait for it too
  auto text = come->begin();
  for (const auto& [node, key] : keys) {
    const std::optional<std::string>& record = *text++;
    if (!record) continue;
    if (auto seen = parse_record<SeenRecord>(*record); seen.ok()) {
      answers.seen[node] = *std::move(seen);
    }
    if (!store_.client->remove(key).ok()) return;
  }
  (void)store_.client->remove(own).ok();
}

void NodeAgent::give_up_asking() {
  const std::lock_guard lock(mutex_);
  given_up_asking_ = true;
}

void NodeAgent::answer(const LookRecord& look, const SeenRecord& seen) {
  (void)store_.client->set(seen_key(look, id()), to_text(seen)).ok();
}

void NodeAgent::answer_ended(const LookRecord& look, const RoundRecord& round) {
  for (const RoundRecord::Node& node : round.nodes) {
    if (node.id == id() && is_asked(look, node)) answer(look, {.ended = true});
  }
}

std::string NodeAgent::store_address(const RoundRecord& round) const {
  // The host with the store reaches it over loopback, but its ranks give their peers the address
  // of the interface through which they reach it.
  const std::string own = store_.client->server_host();
  const std::string& host = store_.server || is_loopback(own) ? round.store : own;
  return host + ":" + std::to_string(options_.settings.port);
}

void NodeAgent::work() {
  if (join_job()) watch();
}

bool NodeAgent::join_job() {
  auto next_notice = Deadline::Clock::now();
  const Logger logger = make_store_logger();
  const auto pause = [&](const Status& so_far) {
    if (Deadline::Clock::now() >= next_notice) {
      next_notice += kNoticeInterval;
      post(NodeNotice{"waiting for the node with the store, " + options_.settings.endpoint() +
                      " (" + so_far.to_string() + ")"});
    }
    return !wait_for_stop(kRetry);
  };
  const Deadline deadline = Deadline::after(options_.settings.join_timeout);
  auto store = open_node_store(options_.settings, logger, deadline, pause);
  if (!store.ok()) {
    const StatusCode code = store.status().code();
    const bool secret = code == StatusCode::kUnauthenticated;
    fail(secret ? Status(code, store.status().to_string() + kSameSecret) : store.status(),
         code == StatusCode::kIo ? kLauncherFailure : kLauncherRendezvous);
    return false;
  }
  store_ = *std::move(store);
  store_.client->limit_answers(beat_clock_.answer_limit());
  if (store_.server) {
    auto client = TcpStore::connect(store_.address, options_.settings.token, deadline);
    if (!client.ok()) {
      fail(client.status(), kLauncherRendezvous);
      return false;
    }
    (*client)->limit_answers(beat_clock_.answer_limit());
    NodeCoordinator::Options options = options_.coordinator;
    options.advice = [this] { return advice_on_absent(); };
    coordinator_ = std::make_unique<CoordinatorThread>(
        *std::move(client), std::move(options), [this](const std::string& why) { fail_here(why); });
  }
  const std::string& chosen = options_.settings.local_address;
  options_.self.address = chosen.empty() ? store_.client->own_host() : chosen;
  options_.self.store = store_.client->server_host();
  if (stopping()) return false;  // it would be one of those with whom the job begins
  const Status told =
      store_.client->set_owned(std::string(node_keys::kMember) + id(), to_text(options_.self));
  if (!told.ok()) {
    fail(told, kLauncherRendezvous);
    return false;
  }
  std::optional<EndedRecord> last_word;
  {
    const std::lock_guard lock(mutex_);
    last_word = last_word_;
    joined_ = !last_word;  // which is said first, and by this thread
    beat_clock_.start(Deadline::Clock::now());
    if (stopping_ && !last_word) return false;
  }
  if (last_word) {
    report(kNoRound, *last_word, "");
    withdraw();
    return false;
  }
  beats_ = start_thread([this] { guarded([this] { beat(); }); });
  return true;
}

// Why nodes may not have come.
std::string NodeAgent::advice_on_absent() const {
  const std::uint64_t refused = store_.server->clients_refused();
  if (refused > 0) {
    return (refused == 1 ? std::string("a connection was")
                         : std::to_string(refused) + " connections were") +
           " refused, see above" + kSameSecret;
  }
  std::string advice = options_.coordinator.advice ? options_.coordinator.advice() : "";
  if (!advice.empty() || store_.loopback.empty()) return advice;
  const std::string& name = options_.settings.host;
  return name + " is " + store_.loopback + " here, so this node hosts the store: if " + name +
         " is another host, correct that in /etc/hosts";
}

void NodeAgent::beat() {
  const std::string key = std::string(node_keys::kBeats) + id();
  for (std::uint64_t count = 0; !wait_for_stop(count == 0 ? 0ms : kBeatInterval); ++count) {
    if (is_silent()) return;
    begin_beat();
    const Status alive = store_.client->set(key, std::to_string(count));
    if (!alive.ok()) return fail_without_store(alive);
    end_beat();
  }
}

void NodeAgent::begin_beat() {
  const std::lock_guard lock(mutex_);
  beat_clock_.begin(Deadline::Clock::now());
}

void NodeAgent::end_beat() {
  const std::lock_guard lock(mutex_);
  beat_clock_.end();
}

std::chrono::nanoseconds NodeAgent::silence() {
  const std::lock_guard lock(mutex_);
  return beat_clock_.silence(Deadline::Clock::now());
}

void NodeAgent::watch() {
  std::uint64_t revision = 0;
  while (!stopping()) {
    const auto seen = store_.client->watch(node_keys::kAll, revision, Deadline::after(kWatchTurn));
    if (seen.status().code() == StatusCode::kTimeout) continue;  // the beats notice what is wrong
    if (!seen.ok()) return fail_without_store(seen.status());
    revision = seen->revision;
    for (const auto& change : seen->changes) {
      if (!handle(change)) return;
    }
  }
}

// False after the last one that matters.
bool NodeAgent::handle(const StoreChanges::Change& change) {
  if (!change.value) return true;
  const auto pass_on = [&](auto record) {
    if (record.ok()) post(*std::move(record));
  };
  if (change.key == std::string(node_keys::kRefused) + id()) {
    const bool lost = change.value->starts_with("this node was taken for lost");
    fail(Status(StatusCode::kMismatch, *change.value),
         lost ? kLauncherNodeLost : kLauncherRendezvous);
    return false;
  }
  if (change.key.starts_with(node_keys::kLook) && !change.key.ends_with("/" + id())) {
    pass_on(parse_record<LookRecord>(*change.value));
  }
  if (change.key == node_keys::kWaiting) post(NodeNotice{*change.value});
  if (change.key == node_keys::kRound) pass_on(parse_record<RoundRecord>(*change.value));
  if (change.key == node_keys::kStop) pass_on(parse_record<StopRecord>(*change.value));
  if (change.key == node_keys::kVerdict) pass_on(parse_record<VerdictRecord>(*change.value));
  return true;
}

void NodeAgent::post(NodeEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  const std::uint64_t one = 1;
  (void)!write(event_descriptor_.get(), &one, sizeof(one));
}

void NodeAgent::fail(const Status& status, int exit_code) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || stopping_) return;
    failed_ = true;
  }
  post(NodeError{exit_code, status.to_string()});
}

void NodeAgent::fail_here(const std::string& why) {
  fail(Status(StatusCode::kIo, "this node cannot go on: " + why), kLauncherFailure);
}

// A node that was stopped finds that all its time limits have passed, which is not the store's
// fault.
void NodeAgent::fail_without_store(const Status& why) {
  const auto silent = silence();
  const std::string text =
      silent > options_.settings.longest_silence
          ? "this node was silent for " + seconds(silent) +
                " (stopped, or without processor time): the job has gone on or ended without it"
          : "the node with the store, " + options_.settings.endpoint() +
                ", is lost: " + why.to_string();
  fail(Status(StatusCode::kPeerLost, text), kLauncherNodeLost);
  store_.client->disconnect();  // whose answers this node's other threads would wait for in vain
}

// What a thread of this node does: no exception may leave it.
void NodeAgent::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    fail_here(error.what());
  }
}

// True if the agent is to stop; waits `time` for that.
bool NodeAgent::wait_for_stop(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return stopping_; });
}

// There is nothing more to watch for.
bool NodeAgent::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_ || failed_;
}

bool NodeAgent::is_silent() {
  const std::lock_guard lock(mutex_);
  return silent_;
}

bool NodeAgent::gives_up_asking() {
  const std::lock_guard lock(mutex_);
  return stopping_ || given_up_asking_;
}

}  // namespace dlaunch
