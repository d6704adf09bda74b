#include "runtime/rendezvous/store_waits.h"

#include <algorithm>
#include <new>
#include <utility>

#include "runtime/rendezvous/missing_keys.h"

namespace dlaunch {

using store_protocol::error_response;
using store_protocol::Message;
using store_protocol::Operation;

struct StoreWaits::Wait {
  Message request;
  const void* owner;
  Reply reply;
  asio::steady_timer timer;
  std::size_t awaited = 0;     // a get_all: the missing key it is registered under
  std::uint64_t revision = 0;  // a watch: since when

  bool is_watch() const { return static_cast<Operation>(request.code) == Operation::kWatch; }
};

namespace {

// The longest wait a client can ask for keeps the timer's arithmetic in range.
constexpr std::chrono::hours kLongestWait{366 * 24};

Message number_response(std::uint64_t id, const Result<std::int64_t>& number) {
  if (!number.ok()) return error_response(id, number.status());
  return {.id = id, .number = *number};
}

Message swap_response(std::uint64_t id, Result<StoreSwap> swap) {
  if (!swap.ok()) return error_response(id, swap.status());
  Message response{.id = id, .number = swap->swapped ? 1 : 0};
  if (swap->value) response.parts.push_back(*std::move(swap->value));
  return response;
}

Message too_long(std::uint64_t id, std::size_t bytes) {
  return error_response(
      id, Status(StatusCode::kInvalidArgument, "store: the values asked for at once have " +
                                                   std::to_string(bytes) +
                                                   " bytes; ask for fewer keys at a time"));
}

// Or says that there is no memory for it; what `make` does, it does then not at all.
template <typename Make>
Message response_or_error(std::uint64_t id, const Make& make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return error_response(id, Status(StatusCode::kUnavailable, "store: no memory is left"));
  }
}

bool fits_response(std::size_t bytes) {
  return bytes + 64 <= store_protocol::kMostResponseBytes;
}

Message try_get(const StoreTable& table, const Message& request) {
  std::size_t bytes = request.parts.size();  // flags
  for (const std::string& key : request.parts) {
    const std::string* value = table.find(key);
    if (value != nullptr) bytes += value->size() + sizeof(std::uint32_t);
  }
  if (!fits_response(bytes)) return too_long(request.id, bytes);
  return store_protocol::try_get_response(request.id, table.values_there(request.parts));
}

Message list(const StoreTable& table, const Message& request) {
  const auto most = static_cast<std::size_t>(
      std::min<std::int64_t>(request.number, store_protocol::kMostEntries));
  const auto entries = table.list(request.parts[0], request.parts[1], most);
  const bool more =
      !entries.empty() && !table.list(request.parts[0], entries.back().key, 1).empty();
  return store_protocol::list_response(request.id, entries, more);
}

}  // namespace

void StoreWaits::handle(Message request, const void* owner, const Reply& reply) {
  const Status valid = store_protocol::check_request(request);
  if (!valid.ok()) return reply(error_response(request.id, valid));
  switch (static_cast<Operation>(request.code)) {
    case Operation::kGetAll:
      return get_all(std::move(request), owner, reply);
    case Operation::kWatch:
      return watch(std::move(request), owner, reply);
    case Operation::kTryGet:
      return reply(response_or_error(request.id, [&] { return try_get(table_, request); }));
    case Operation::kList:
      return reply(response_or_error(request.id, [&] { return list(table_, request); }));
    case Operation::kStat:
      return reply(error_response(request.id, Status(StatusCode::kInvalidArgument, "no server")));
    default:
      break;
  }
  const std::uint64_t before = table_.revision();
  reply(response_or_error(request.id, [&] { return change(request, owner); }));
  if (table_.revision() == before) return;
  disown(request, owner);
  key_changed(request.parts[0]);
}

// The operations that change one key.
Message StoreWaits::change(const Message& request, const void* owner) {
  const std::string& key = request.parts[0];
  const auto set = [&]() -> Result<std::int64_t> {
    const Status status = table_.set(key, request.parts[1]);
    if (!status.ok()) return status;
    return std::int64_t{0};
  };
  switch (static_cast<Operation>(request.code)) {
    case Operation::kSetOwned: {
      const auto [owned, fresh] = owned_.try_emplace(key, nullptr);  // while nothing has changed
      const auto done = set();
      if (done.ok()) owned->second = owner;
      if (!done.ok() && fresh) owned_.erase(owned);
      return number_response(request.id, done);
    }
    case Operation::kAdd:
      return number_response(request.id, table_.add(key, request.number));
    case Operation::kAppend:
      return number_response(request.id, table_.append(key, request.parts[1]));
    case Operation::kRemove:
      return number_response(request.id, std::int64_t{table_.remove(key) ? 1 : 0});
    case Operation::kCompareAndSet: {
      std::optional<std::string_view> expected;
      if (request.number == 1) expected = request.parts[2];
      return swap_response(request.id, table_.compare_and_set(key, expected, request.parts[1]));
    }
    default:
      return number_response(request.id, set());
  }
}

// A key belongs to whoever has set it so until somebody else changes it, or it is removed.
void StoreWaits::disown(const Message& request, const void* owner) {
  const auto owned = owned_.find(request.parts[0]);
  if (owned == owned_.end()) return;
  const bool removed = static_cast<Operation>(request.code) == Operation::kRemove;
  if (removed || owned->second != owner) owned_.erase(owned);
}

void StoreWaits::get_all(Message request, const void* owner, const Reply& reply) {
  const auto missing = first_missing(request.parts, 0);
  if (!missing) return reply(values_response(request));
  wait(std::move(request), owner, reply, missing);
}

void StoreWaits::watch(Message request, const void* owner, const Reply& reply) {
  auto changes =
      table_.changes(request.parts[0], *store_protocol::parse_revision(request.parts[1]));
  if (!changes.changes.empty()) {
    return reply(store_protocol::watch_response(request.id, std::move(changes)));
  }
  wait(std::move(request), owner, reply, std::nullopt);
}

void StoreWaits::wait(Message request, const void* owner, const Reply& reply,
                      std::optional<std::size_t> missing_key) {
  Owner& owned = owners_[owner];
  const std::size_t bytes = store_protocol::body_bytes(request);
  if (owned.waits.size() >= store_protocol::kMostWaits ||
      owned.waiting_bytes + bytes > store_protocol::kMostWaitingBytes) {
    return reply(error_response(request.id, Status(StatusCode::kUnavailable,
                                                   "store: too many requests of this client wait "
                                                   "already")));
  }
  const auto time =
      std::min<std::chrono::microseconds>(kLongestWait, std::chrono::microseconds(request.number));
  auto wait = std::make_shared<Wait>(
      Wait{std::move(request), owner, reply, asio::steady_timer(context_, time), {}});
  owned.waits.push_back(wait);
  owned.waiting_bytes += bytes;
  ++waiting_;
  if (missing_key) {
    register_under(wait, *missing_key);
  } else {
    wait->revision = *store_protocol::parse_revision(wait->request.parts[1]);
    watches_.push_back(wait);
  }
  // A wait that is answered or forgotten destroys its timer, which cancels this.
  wait->timer.async_wait([this, weak = std::weak_ptr(wait)](const asio::error_code& error) {
    const auto alive = weak.lock();
    if (!error && alive) time_out(alive);
  });
}

// The first key, from that index on, that has no value.
std::optional<std::size_t> StoreWaits::first_missing(const std::vector<std::string>& keys,
                                                     std::size_t from) const {
  while (from < keys.size() && table_.find(keys[from]) != nullptr) ++from;
  if (from == keys.size()) return std::nullopt;
  return from;
}

void StoreWaits::register_under(const WaitPointer& wait, std::size_t key) {
  wait->awaited = key;
  by_key_[wait->request.parts[key]].push_back(wait);
}

void StoreWaits::key_changed(const std::string& key) {
  answer_get_alls(key);
  answer_watches(key);
}

void StoreWaits::answer_get_alls(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || table_.find(key) == nullptr) return;
  const auto waits = std::move(found->second);
  by_key_.erase(found);
  // Most of those who wait for a key, as at a barrier, wait for the same others too: what has come
  // for one has come for all of them, and one response does.
  Message response;
  const std::vector<std::string>* answered = nullptr;
  for (const auto& wait : waits) {
    const auto& keys = wait->request.parts;
    if (answered == nullptr || *answered != keys) {
      // The keys before have come. Only at the end they are looked at again: some may have gone.
      auto missing = first_missing(keys, wait->awaited);
      if (!missing) missing = first_missing(keys, 0);
      if (missing) {
        register_under(wait, *missing);
        continue;
      }
      response = values_response(wait->request);
      answered = &keys;
    }
    response.id = wait->request.id;
    finish(wait, response);
  }
}

void StoreWaits::answer_watches(const std::string& key) {
  const auto first = std::stable_partition(watches_.begin(), watches_.end(), [&](const auto& wait) {
    return !key.starts_with(wait->request.parts[0]);
  });
  const std::vector<WaitPointer> waits(first, watches_.end());
  watches_.erase(first, watches_.end());
  for (const auto& wait : waits) {
    finish(wait, response_or_error(wait->request.id, [&] {
             return store_protocol::watch_response(
                 wait->request.id, table_.changes(wait->request.parts[0], wait->revision));
           }));
  }
}

void StoreWaits::time_out(const WaitPointer& wait) {
  unregister(wait);
  const std::string why = wait->is_watch() ? describe_unchanged(wait->request.parts[0])
                                           : describe_missing(table_.missing(wait->request.parts));
  finish(wait, error_response(wait->request.id, Status(StatusCode::kTimeout, "store: " + why)));
}

// Of a wait that is registered nowhere any more.
void StoreWaits::finish(const WaitPointer& wait, const Message& response) {
  const auto found = owners_.find(wait->owner);
  std::erase(found->second.waits, wait);
  found->second.waiting_bytes -= store_protocol::body_bytes(wait->request);
  forget_if_idle(found);
  --waiting_;
  wait->reply(response);
}

void StoreWaits::unregister(const WaitPointer& wait) {
  if (wait->is_watch()) {
    std::erase(watches_, wait);
    return;
  }
  const auto found = by_key_.find(wait->request.parts[wait->awaited]);
  if (found == by_key_.end()) return;
  std::erase(found->second, wait);
  if (found->second.empty()) by_key_.erase(found);
}

void StoreWaits::forget_if_idle(Owners::iterator owner) {
  if (owner->second.waits.empty()) owners_.erase(owner);
}

void StoreWaits::forget(const void* owner) {
  if (const auto found = owners_.find(owner); found != owners_.end()) {
    const Owner gone = std::move(found->second);
    owners_.erase(found);
    for (const auto& wait : gone.waits) unregister(wait);
    waiting_ -= gone.waits.size();
  }
  // Few keys are owned: one by each node.
  for (auto each = owned_.begin(); each != owned_.end();) {
    const auto here = each++;
    if (here->second != owner) continue;
    const auto owned = owned_.extract(here);
    table_.remove(owned.key());
    key_changed(owned.key());
  }
}

Message StoreWaits::values_response(const Message& request) const {
  std::size_t bytes = 0;
  for (const std::string& key : request.parts) {
    bytes += table_.find(key)->size() + sizeof(std::uint32_t);
  }
  if (!fits_response(bytes)) return too_long(request.id, bytes);
  return response_or_error(
      request.id, [&] { return Message{.id = request.id, .parts = table_.values(request.parts)}; });
}

}  // namespace dlaunch
