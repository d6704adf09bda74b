#include "runtime/rendezvous/store_waits.h"

#include <algorithm>
#include <utility>

namespace dlaunch {

using store_protocol::Message;
using store_protocol::Operation;

struct StoreWaits::Wait {
  Message request;
  const void* owner;
  Reply reply;
  asio::steady_timer timer;
  std::string key;  // the missing key it is registered under
};

namespace {

// Ids of one connection's waits are few; the longest wait a client can ask for keeps the timer's
// arithmetic in range.
constexpr std::chrono::hours kLongestWait{366 * 24};

Message number_response(std::uint64_t id, std::int64_t number) {
  return {.id = id, .number = number};
}

}  // namespace

void StoreWaits::handle(Message request, const void* owner, const Reply& reply) {
  const Status valid = store_protocol::check_request(request);
  if (!valid.ok()) return reply(store_protocol::error_response(request.id, valid));
  switch (static_cast<Operation>(request.code)) {
    case Operation::kSet: {
      const Status status = table_.set(request.parts[0], request.parts[1]);
      if (!status.ok()) return reply(store_protocol::error_response(request.id, status));
      reply(number_response(request.id, 0));
      return key_was_set(request.parts[0]);
    }
    case Operation::kAdd: {
      const auto sum = table_.add(request.parts[0], request.number);
      if (!sum.ok()) return reply(store_protocol::error_response(request.id, sum.status()));
      reply(number_response(request.id, *sum));
      return key_was_set(request.parts[0]);
    }
    case Operation::kRemove:
      return reply(number_response(request.id, table_.remove(request.parts[0]) ? 1 : 0));
    case Operation::kGetAll:
      return get_all(std::move(request), owner, reply);
  }
}

void StoreWaits::get_all(Message request, const void* owner, const Reply& reply) {
  const auto missing = std::find_if(request.parts.begin(), request.parts.end(),
                                    [&](const auto& key) { return table_.find(key) == nullptr; });
  if (missing == request.parts.end()) return reply(values_response(request));
  const std::string key = *missing;
  const auto time =
      std::min<std::chrono::microseconds>(kLongestWait, std::chrono::microseconds(request.number));
  auto wait = std::make_shared<Wait>(
      Wait{std::move(request), owner, reply, asio::steady_timer(context_, time), {}});
  by_owner_[owner].push_back(wait);
  wait_for(wait, key);
  // A wait that is answered or forgotten destroys its timer, which cancels this.
  wait->timer.async_wait([this, weak = std::weak_ptr(wait)](const asio::error_code& error) {
    const auto alive = weak.lock();
    if (!error && alive) time_out(alive);
  });
}

void StoreWaits::wait_for(const std::shared_ptr<Wait>& wait, const std::string& key) {
  wait->key = key;
  by_key_[key].push_back(wait);
}

void StoreWaits::key_was_set(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  const auto waits = std::move(found->second);
  by_key_.erase(found);
  for (const auto& wait : waits) {
    const auto& keys = wait->request.parts;
    const auto missing = std::find_if(keys.begin(), keys.end(),
                                      [&](const auto& k) { return table_.find(k) == nullptr; });
    if (missing != keys.end()) {
      wait_for(wait, *missing);
      continue;
    }
    std::erase(by_owner_[wait->owner], wait);
    wait->reply(values_response(wait->request));
  }
}

void StoreWaits::time_out(const std::shared_ptr<Wait>& wait) {
  unregister(*wait);
  std::erase(by_owner_[wait->owner], wait);
  const auto missing = table_.missing(wait->request.parts);
  wait->reply(store_protocol::error_response(
      wait->request.id,
      Status(StatusCode::kTimeout, "store: " + store_protocol::describe_missing(missing))));
}

void StoreWaits::unregister(const Wait& wait) {
  const auto found = by_key_.find(wait.key);
  if (found == by_key_.end()) return;
  std::erase_if(found->second, [&](const auto& other) { return other.get() == &wait; });
  if (found->second.empty()) by_key_.erase(found);
}

void StoreWaits::forget(const void* owner) {
  const auto found = by_owner_.find(owner);
  if (found == by_owner_.end()) return;
  for (const auto& wait : found->second) unregister(*wait);
  by_owner_.erase(found);
}

Message StoreWaits::values_response(const Message& request) const {
  std::size_t bytes = 0;
  for (const std::string& key : request.parts) {
    bytes += table_.find(key)->size() + sizeof(std::uint32_t);
  }
  if (bytes + 64 > store_protocol::kMostResponseBytes) {
    return store_protocol::error_response(
        request.id, Status(StatusCode::kInvalidArgument,
                           "store: the values asked for at once have " + std::to_string(bytes) +
                               " bytes; ask for fewer keys at a time"));
  }
  return {.id = request.id, .parts = table_.values(request.parts)};
}

}  // namespace dlaunch
