#include "runtime/rendezvous/tcp_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/host_address.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/socket_io.h"

namespace dlaunch {
namespace {

using store_protocol::Message;
using store_protocol::Operation;

// The server ends a get_all at its deadline and says which keys are missing; the client gives up on
// its own only if that answer does not come.
constexpr std::chrono::seconds kAnswerSlack{5};
constexpr std::chrono::hours kLongestCall{30 * 24};

// A wait that is shorter is not published; one that goes on is looked at now and then.
constexpr std::chrono::milliseconds kUnpublished{200};
constexpr std::chrono::milliseconds kTurn{2000};
// The more keys a turn asks for again, the longer it is: thousands of ranks may wait for each
// other.
constexpr std::chrono::milliseconds kTurnPerKey{5};

// Before another try.
constexpr std::chrono::milliseconds kBetweenHandshakes{100};

// Of a batch.
constexpr std::size_t kMostUnderWay = 1024;
constexpr std::size_t kMostBytesUnderWay = std::size_t{1} << 20;

std::uint8_t code_of(Operation operation) {
  return static_cast<std::uint8_t>(operation);
}

std::chrono::microseconds time_to_wait(Deadline deadline) {
  return std::min<std::chrono::microseconds>(
      kLongestCall, std::chrono::duration_cast<std::chrono::microseconds>(deadline.remaining()));
}

Result<std::int64_t> number_of(const Result<Message>& response) {
  if (!response.ok()) return response.status();
  return response->number;
}

std::string numeric_host(int socket, int (*end_of)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage end{};
  socklen_t length = sizeof(end);
  auto* const address = reinterpret_cast<sockaddr*>(&end);
  if (end_of(socket, address, &length) != 0) return "";
  std::string text = numeric_text(address);
  return end.ss_family == AF_INET6 ? "[" + text + "]" : text;
}

// "store: no value for 'go'" -> "no value for 'go'".
std::string without_context(std::string text) {
  constexpr std::string_view kWho = "store: ";
  if (text.starts_with(kWho)) text.erase(0, kWho.size());
  return text;
}

Status check_greeting(std::string_view greeting) {
  constexpr std::string_view kOurs = store_protocol::kGreeting;
  if (greeting == kOurs) return {};
  const std::string_view name = kOurs.substr(0, kOurs.size() - 1);
  if (!greeting.starts_with(name)) {
    return Status(StatusCode::kProtocol, "that is no rendezvous store");
  }
  return Status(StatusCode::kProtocol,
                "the store speaks version " + std::string(1, greeting.back()) +
                    " of its protocol, this program version " + std::string(1, kOurs.back()) +
                    ": they come from different versions of dlaunch");
}

// A server that closes the connection meanwhile may be asked again.
Status receive_part(int socket, void* data, std::size_t bytes, Deadline deadline) {
  Status received = receive_exactly(socket, static_cast<char*>(data), bytes, deadline);
  if (received.code() != StatusCode::kPeerLost) return received;
  return Status(StatusCode::kUnavailable,
                "the store closed the connection before the handshake was done");
}

Status shake_hands(int socket, std::string_view token, Deadline deadline) {
  std::array<char, store_protocol::kGreeting.size()> greeting;
  Nonce challenge;
  DLAUNCH_RETURN_IF_ERROR(receive_part(socket, greeting.data(), greeting.size(), deadline));
  DLAUNCH_RETURN_IF_ERROR(check_greeting(as_text(greeting)));
  DLAUNCH_RETURN_IF_ERROR(receive_part(socket, challenge.data(), challenge.size(), deadline));
  const Nonce own = make_nonce();
  const Mac proof = make_proof(token, HandshakeRole::kConnector, challenge, own);
  std::string response(as_text(own));
  response += as_text(proof);
  DLAUNCH_RETURN_IF_ERROR(send_all(socket, response, deadline));

  Mac answer;
  DLAUNCH_RETURN_IF_ERROR(receive_part(socket, answer.data(), answer.size(), deadline));
  if (answer == store_protocol::kRefusal) {
    return Status(StatusCode::kUnauthenticated, "the store refused this job's token");
  }
  if (!proof_holds(answer, token, HandshakeRole::kListener, own, challenge)) {
    return Status(StatusCode::kUnauthenticated, "the store does not know this job's token");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TcpStore>> TcpStore::connect(std::string_view address,
                                                    std::string_view token, Deadline deadline,
                                                    std::string prefix) {
  const std::string context = "store at " + std::string(address);
  if (token.size() != kTokenBytes) {
    return Status(StatusCode::kInvalidArgument, context + ": a token has 32 bytes");
  }
  while (true) {
    auto socket = connect_socket(address, deadline);
    if (!socket.ok()) return socket.status().within(context);
    const Status status = shake_hands(*socket, token, deadline);
    if (status.ok()) {
      return std::unique_ptr<TcpStore>(
          new TcpStore(*socket, std::string(address), std::move(prefix)));
    }
    close(*socket);
    // A process that was held up for longer than the store waits for it tries again.
    if (status.code() != StatusCode::kUnavailable || deadline.expired()) {
      return status.within(context);
    }
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(kBetweenHandshakes, deadline.remaining()));
  }
}

TcpStore::TcpStore(int socket, std::string address, std::string prefix)
    : socket_(socket),
      address_(std::move(address)),
      prefix_(std::move(prefix)),
      inbox_(store_protocol::kMostResponseBytes) {}

TcpStore::~TcpStore() {
  close(socket_);
}

void TcpStore::disconnect() {
  shutdown(socket_, SHUT_RDWR);
}

std::string TcpStore::own_host() const {
  return numeric_host(socket_, getsockname);
}

std::string TcpStore::server_host() const {
  return numeric_host(socket_, getpeername);
}

// Requests name keys as the caller does, and in the store their names begin with the prefix.
Status TcpStore::put_prefix(Message& request) const {
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_request(request));
  if (prefix_.empty() || request.parts.empty()) return {};
  const auto operation = static_cast<Operation>(request.code);
  std::size_t keys = 1;  // of the parts
  if (operation == Operation::kGetAll || operation == Operation::kTryGet)
    keys = request.parts.size();
  if (operation == Operation::kList && !request.parts[1].empty()) keys = 2;
  for (std::size_t i = 0; i < keys; ++i) request.parts[i].insert(0, prefix_);
  return store_protocol::check_request(request).within("with the prefix '" + prefix_ + "'");
}

Status TcpStore::strip_prefix(std::string& key) const {
  if (!key.starts_with(prefix_)) {
    return Status(StatusCode::kProtocol, "store at " + address_ + ": a key nobody asked for");
  }
  key.erase(0, prefix_.size());
  return {};
}

Status TcpStore::set(std::string_view key, std::string_view value) {
  return call({.code = code_of(Operation::kSet), .parts = {std::string(key), std::string(value)}},
              Deadline::after(answer_limit_))
      .status();
}

Status TcpStore::set_owned(std::string_view key, std::string_view value) {
  return call({.code = code_of(Operation::kSetOwned),
               .parts = {std::string(key), std::string(value)}},
              Deadline::after(answer_limit_))
      .status();
}

// The error of a wait names what is missing: so the wait is cut into turns, and what each of them
// missed is published until the next one.
template <typename Wait>
auto TcpStore::wait_visibly(std::size_t keys, Deadline deadline, const Wait& wait)
    -> decltype(wait(deadline)) {
  if (activity_ == nullptr) return wait(deadline);
  const auto since = Deadline::Clock::now();
  ActivityReporter reporter;
  std::string published;
  const auto for_keys = kTurnPerKey * static_cast<std::int64_t>(keys);
  for (auto turn = kUnpublished;; turn = kTurn) {
    auto result = wait(earliest(deadline, Deadline::after(turn + for_keys)));
    if (result.status().code() != StatusCode::kTimeout || deadline.expired()) return result;
    const std::string missing = without_context(result.status().to_string());
    if (missing == std::exchange(published, missing)) continue;
    if (!reporter.published()) reporter = activity_->reporter("", 0, 0);
    reporter.begin_store_wait(missing, since);
  }
}

// An error names keys as the caller does: "no value for 'go'", not 'attempt 0/go'.
Status TcpStore::status_of(Message& response) const {
  if (static_cast<StatusCode>(response.code) != StatusCode::kOk && !prefix_.empty()) {
    const std::string quoted = "'" + prefix_;
    for (std::string& text : response.parts)
      for (std::size_t at = 0; (at = text.find(quoted, at)) != std::string::npos; ++at)
        text.erase(at + 1, prefix_.size());
  }
  return store_protocol::response_status(response);
}

Result<std::vector<std::string>> TcpStore::get_all(const std::vector<std::string>& keys,
                                                   Deadline deadline) {
  return wait_visibly(keys.size(), deadline,
                      [&](Deadline until) { return get_all_once(keys, until); });
}

Result<std::vector<std::string>> TcpStore::get_all_once(const std::vector<std::string>& keys,
                                                        Deadline deadline) {
  const auto wait = time_to_wait(deadline);
  auto response =
      call({.code = code_of(Operation::kGetAll), .number = wait.count(), .parts = keys},
           Deadline::after(wait + std::min<std::chrono::nanoseconds>(kAnswerSlack, answer_limit_)));
  if (!response.ok()) return response.status();
  if (response->parts.size() != keys.size()) {
    return Status(StatusCode::kProtocol, "store at " + address_ + ": wrong number of values");
  }
  return std::move(response->parts);
}

Result<std::vector<std::optional<std::string>>> TcpStore::try_get(
    const std::vector<std::string>& keys) {
  auto response =
      call({.code = code_of(Operation::kTryGet), .parts = keys}, Deadline::after(answer_limit_));
  if (!response.ok()) return response.status();
  return store_protocol::read_try_get(*std::move(response), keys.size());
}

Result<std::int64_t> TcpStore::add(std::string_view key, std::int64_t amount) {
  return number_of(
      call({.code = code_of(Operation::kAdd), .number = amount, .parts = {std::string(key)}},
           Deadline::after(answer_limit_)));
}

Result<StoreSwap> TcpStore::compare_and_set(std::string_view key,
                                            std::optional<std::string_view> expected,
                                            std::string_view desired) {
  Message request{.code = code_of(Operation::kCompareAndSet),
                  .number = expected ? 1 : 0,
                  .parts = {std::string(key), std::string(desired)}};
  if (expected) request.parts.emplace_back(*expected);
  auto response = call(std::move(request), Deadline::after(answer_limit_));
  if (!response.ok()) return response.status();
  StoreSwap swap{.swapped = response->number != 0};
  if (!response->parts.empty()) swap.value = std::move(response->parts[0]);
  return swap;
}

Result<std::int64_t> TcpStore::append(std::string_view key, std::string_view bytes) {
  return number_of(
      call({.code = code_of(Operation::kAppend), .parts = {std::string(key), std::string(bytes)}},
           Deadline::after(answer_limit_)));
}

Result<bool> TcpStore::remove(std::string_view key) {
  const auto removed =
      number_of(call({.code = code_of(Operation::kRemove), .parts = {std::string(key)}},
                     Deadline::after(answer_limit_)));
  if (!removed.ok()) return removed.status();
  return *removed != 0;
}

Result<std::vector<StoreEntry>> TcpStore::list(std::string_view prefix) {
  std::vector<StoreEntry> all;
  while (true) {
    auto response = call({.code = code_of(Operation::kList),
                          .number = static_cast<std::int64_t>(store_protocol::kMostEntries),
                          .parts = {std::string(prefix), all.empty() ? "" : all.back().key}},
                         Deadline::after(answer_limit_));
    if (!response.ok()) return response.status();
    const bool more = response->number != 0 && !response->parts.empty();
    auto entries = store_protocol::read_list(*std::move(response));
    if (!entries.ok()) return entries.status();
    for (StoreEntry& entry : *entries) {
      DLAUNCH_RETURN_IF_ERROR(strip_prefix(entry.key));
      all.push_back(std::move(entry));
    }
    if (!more) return all;
  }
}

Result<StoreChanges> TcpStore::watch(std::string_view prefix, std::uint64_t revision,
                                     Deadline deadline) {
  return wait_visibly(1, deadline,
                      [&](Deadline until) { return watch_once(prefix, revision, until); });
}

Result<StoreChanges> TcpStore::watch_once(std::string_view prefix, std::uint64_t revision,
                                          Deadline deadline) {
  const auto wait = time_to_wait(deadline);
  auto response =
      call({.code = code_of(Operation::kWatch),
            .number = wait.count(),
            .parts = {std::string(prefix), std::to_string(revision)}},
           Deadline::after(wait + std::min<std::chrono::nanoseconds>(kAnswerSlack, answer_limit_)));
  if (!response.ok()) return response.status();
  auto changes = store_protocol::read_watch(*std::move(response));
  if (!changes.ok()) return changes.status();
  for (auto& change : changes->changes) DLAUNCH_RETURN_IF_ERROR(strip_prefix(change.key));
  return changes;
}

Result<std::vector<std::pair<std::string, std::string>>> TcpStore::stat() {
  auto response = call({.code = code_of(Operation::kStat)}, Deadline::after(answer_limit_));
  if (!response.ok()) return response.status();
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::size_t i = 0; i + 1 < response->parts.size(); i += 2) {
    pairs.emplace_back(std::move(response->parts[i]), std::move(response->parts[i + 1]));
  }
  return pairs;
}

Result<std::vector<std::int64_t>> TcpStore::run(const StoreBatch& batch, Deadline deadline) {
  std::vector<Message> requests = batch.requests();
  for (Message& request : requests) {
    DLAUNCH_RETURN_IF_ERROR(put_prefix(request));
  }
  std::vector<Call> calls(requests.size());
  for (std::size_t begin = 0; begin < requests.size();) {
    std::size_t end = begin;
    for (std::size_t bytes = 0; end < requests.size() && end - begin < kMostUnderWay; ++end) {
      bytes += store_protocol::body_bytes(requests[end]);
      if (end > begin && bytes > kMostBytesUnderWay) break;
    }
    DLAUNCH_RETURN_IF_ERROR(run_calls(std::span(requests).subspan(begin, end - begin),
                                      std::span(calls).subspan(begin, end - begin), deadline));
    begin = end;
  }
  std::vector<std::int64_t> numbers;
  numbers.reserve(calls.size());
  for (Call& call : calls) {
    DLAUNCH_RETURN_IF_ERROR(status_of(call.response));
    numbers.push_back(call.response.number);
  }
  return numbers;
}

Result<Message> TcpStore::call(Message request, Deadline deadline) {
  DLAUNCH_RETURN_IF_ERROR(put_prefix(request));
  if (store_protocol::body_bytes(request) > store_protocol::kMostRequestBytes) {
    return Status(StatusCode::kInvalidArgument, "store: the keys of one call are too long");
  }
  Call own;
  DLAUNCH_RETURN_IF_ERROR(run_calls({&request, 1}, {&own, 1}, deadline));
  DLAUNCH_RETURN_IF_ERROR(status_of(own.response));
  return std::move(own.response);
}

// Sends requests together and waits for all their responses. Those of one connection that do not
// wait are answered in order, but nothing here depends on it.
Status TcpStore::run_calls(std::span<Message> requests, std::span<Call> calls, Deadline deadline) {
  std::unique_lock lock(mutex_);
  DLAUNCH_RETURN_IF_ERROR(register_calls(requests, calls));
  const Status sent = send_frames(lock, requests, deadline);
  std::size_t answered = 0;
  const auto all_answered = [&] {
    while (answered < calls.size() && calls[answered].done) ++answered;
    return answered == calls.size();
  };
  while (sent.ok() && !all_answered() && failure_.ok() && !deadline.expired()) {
    if (reading_) {
      changed_.wait_until(lock, deadline.when());
      continue;
    }
    const Status read = read_responses(lock, deadline);
    if (!read.ok() && failure_.ok()) failure_ = read.within("store at " + address_);
    changed_.notify_all();  // the others may have their response, or must read now
  }
  const bool done = all_answered();
  for (const Message& request : requests) calls_.erase(request.id);
  changed_.notify_all();
  if (done) return {};
  if (!sent.ok()) return sent.within("store at " + address_);
  if (!failure_.ok()) return failure_;
  return Status(StatusCode::kTimeout, "store at " + address_ + ": no answer in time");
}

Status TcpStore::register_calls(std::span<Message> requests, std::span<Call> calls) {
  if (!failure_.ok()) return failure_;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = next_id_++;
    calls_.emplace(requests[i].id, &calls[i]);
  }
  return {};
}

// With the lock released while it sends.
Status TcpStore::send_frames(std::unique_lock<std::mutex>& lock, std::span<const Message> requests,
                             Deadline deadline) {
  std::string frames;
  for (const Message& request : requests) store_protocol::append_frame(frames, request);
  if (!changed_.wait_until(lock, deadline.when(), [this] { return !sending_; })) {
    return Status(StatusCode::kTimeout, "could not send in time");
  }
  if (!failure_.ok()) return {};
  sending_ = true;
  lock.unlock();
  Status sent = send_all(socket_, frames, deadline);
  lock.lock();
  sending_ = false;
  changed_.notify_all();
  // A part of a request may have gone: nothing can follow it.
  if (!sent.ok() && failure_.ok()) {
    failure_ = Status(StatusCode::kPeerLost,
                      "store at " + address_ + ": a request broke off: " + sent.to_string());
  }
  return sent;
}

// Reads once from the socket, with the lock released meanwhile, and hands out what has come.
Status TcpStore::read_responses(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  std::array<char, 64 << 10> buffer;
  reading_ = true;
  lock.unlock();
  const auto received = receive_some(socket_, buffer.data(), buffer.size(), deadline);
  lock.lock();
  reading_ = false;
  if (!received.ok()) return received.status();
  inbox_.append({buffer.data(), *received});
  while (true) {
    const auto body = inbox_.next();
    if (!body.ok()) return body.status();
    if (!*body) return {};
    auto response = store_protocol::decode_body(**body);
    if (!response.ok()) return response.status();
    DLAUNCH_RETURN_IF_ERROR(deliver(*std::move(response)));
  }
}

Status TcpStore::deliver(Message response) {
  const auto found = calls_.find(response.id);
  if (found != calls_.end()) {
    found->second->response = std::move(response);
    found->second->done = true;
  } else if (response.id >= next_id_) {  // an older id belongs to a call that gave up
    return Status(StatusCode::kProtocol, "answer to a call that nobody made");
  }
  return {};
}

}  // namespace dlaunch
