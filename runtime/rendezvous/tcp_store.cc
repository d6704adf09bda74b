#include "runtime/rendezvous/tcp_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "runtime/base/token.h"
#include "runtime/rendezvous/socket_io.h"

namespace dlaunch {
namespace {

using store_protocol::Message;
using store_protocol::Operation;

// The server ends a get_all at its deadline and says which keys are missing; the client gives up on
// its own only if that answer does not come.
constexpr std::chrono::seconds kAnswerSlack{5};
constexpr std::chrono::hours kLongestWait{30 * 24};

std::string_view as_text(const auto& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status shake_hands(int socket, std::string_view token, Deadline deadline) {
  std::array<char, store_protocol::kGreeting.size()> greeting;
  Nonce challenge;
  DLAUNCH_RETURN_IF_ERROR(receive_exactly(socket, greeting.data(), greeting.size(), deadline));
  if (as_text(greeting) != store_protocol::kGreeting) {
    return Status(StatusCode::kProtocol, "that is no rendezvous store, or one of another version");
  }
  DLAUNCH_RETURN_IF_ERROR(receive_exactly(socket, reinterpret_cast<char*>(challenge.data()),
                                          challenge.size(), deadline));
  const Nonce own = make_nonce();
  const Mac proof = make_proof(token, HandshakeRole::kConnector, challenge, own);
  std::string response(as_text(own));
  response += as_text(proof);
  DLAUNCH_RETURN_IF_ERROR(send_all(socket, response, deadline));

  Mac answer;
  const Status received =
      receive_exactly(socket, reinterpret_cast<char*>(answer.data()), answer.size(), deadline);
  if (received.code() == StatusCode::kPeerLost) {
    return Status(StatusCode::kUnauthenticated, "the store refused this job's token");
  }
  DLAUNCH_RETURN_IF_ERROR(received);
  if (!proof_holds(answer, token, HandshakeRole::kListener, own, challenge)) {
    return Status(StatusCode::kUnauthenticated, "the store does not know this job's token");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TcpStore>> TcpStore::connect(std::string_view address,
                                                    std::string_view token, Deadline deadline) {
  const std::string context = "store at " + std::string(address);
  if (token.size() != kTokenBytes) {
    return Status(StatusCode::kInvalidArgument, context + ": a token has 32 bytes");
  }
  auto socket = connect_socket(address, deadline);
  if (!socket.ok()) return socket.status().within(context);
  const Status status = shake_hands(*socket, token, deadline);
  if (!status.ok()) {
    close(*socket);
    return status.within(context);
  }
  return std::unique_ptr<TcpStore>(new TcpStore(*socket, std::string(address)));
}

TcpStore::TcpStore(int socket, std::string address)
    : socket_(socket), address_(std::move(address)), inbox_(store_protocol::kMostResponseBytes) {}

TcpStore::~TcpStore() {
  close(socket_);
}

Status TcpStore::set(std::string_view key, std::string_view value) {
  return call({.code = static_cast<std::uint8_t>(Operation::kSet),
               .parts = {std::string(key), std::string(value)}},
              Deadline::after(kDefaultTimeout))
      .status();
}

Result<std::vector<std::string>> TcpStore::get_all(const std::vector<std::string>& keys,
                                                   Deadline deadline) {
  const auto wait = std::min<std::chrono::microseconds>(
      kLongestWait, std::chrono::duration_cast<std::chrono::microseconds>(deadline.remaining()));
  auto response = call({.code = static_cast<std::uint8_t>(Operation::kGetAll),
                        .number = wait.count(),
                        .parts = keys},
                       Deadline::after(wait + kAnswerSlack));
  if (!response.ok()) return response.status();
  if (response->parts.size() != keys.size()) {
    return Status(StatusCode::kProtocol, "store at " + address_ + ": wrong number of values");
  }
  return std::move(response->parts);
}

Result<std::int64_t> TcpStore::add(std::string_view key, std::int64_t amount) {
  auto response = call({.code = static_cast<std::uint8_t>(Operation::kAdd),
                        .number = amount,
                        .parts = {std::string(key)}},
                       Deadline::after(kDefaultTimeout));
  if (!response.ok()) return response.status();
  return response->number;
}

Result<bool> TcpStore::remove(std::string_view key) {
  auto response =
      call({.code = static_cast<std::uint8_t>(Operation::kRemove), .parts = {std::string(key)}},
           Deadline::after(kDefaultTimeout));
  if (!response.ok()) return response.status();
  return response->number != 0;
}

Result<Message> TcpStore::call(Message request, Deadline deadline) {
  DLAUNCH_RETURN_IF_ERROR(store_protocol::check_request(request));
  if (store_protocol::body_bytes(request) > store_protocol::kMostRequestBytes) {
    return Status(StatusCode::kInvalidArgument, "store: the keys of one call are too long");
  }
  Call own;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    request.id = next_id_++;
    calls_.emplace(request.id, &own);
  }
  const Status sent = send_frame(request, deadline);

  std::unique_lock lock(mutex_);
  if (!sent.ok() && failure_.ok()) failure_ = sent.within("store at " + address_);
  while (!own.done && failure_.ok() && !deadline.expired()) {
    if (reading_) {
      changed_.wait_until(lock, deadline.when());
      continue;
    }
    const Status read = read_responses(lock, deadline);
    if (!read.ok() && failure_.ok()) failure_ = read.within("store at " + address_);
    changed_.notify_all();  // the others may have their response, or must read now
  }
  calls_.erase(request.id);
  changed_.notify_all();
  if (own.done) {
    DLAUNCH_RETURN_IF_ERROR(store_protocol::response_status(own.response));
    return std::move(own.response);
  }
  if (!failure_.ok()) return failure_;
  return Status(StatusCode::kTimeout, "store at " + address_ + ": no answer in time");
}

Status TcpStore::send_frame(const Message& request, Deadline deadline) {
  std::string frame;
  store_protocol::append_frame(frame, request);
  const std::lock_guard lock(send_mutex_);
  return send_all(socket_, frame, deadline);
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
    const auto response = store_protocol::decode_body(**body);
    if (!response.ok()) return response.status();
    DLAUNCH_RETURN_IF_ERROR(deliver(*response));
  }
}

Status TcpStore::deliver(const Message& response) {
  const auto found = calls_.find(response.id);
  if (found != calls_.end()) {
    found->second->response = response;
    found->second->done = true;
  } else if (response.id >= next_id_) {  // an older id belongs to a call that gave up
    return Status(StatusCode::kProtocol, "answer to a call that nobody made");
  }
  return {};
}

}  // namespace dlaunch
