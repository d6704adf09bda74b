#include "runtime/comm/objects.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

using Lengths = std::vector<std::int64_t>;
using ByteParts = std::vector<std::string>;

// Carries out a part of the call after which the others wait for this rank, and tells them if there
// is no memory for it. Nothing that communicates throws.
template <typename Call>
Status with_memory(Communicator& world, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {  // bad_alloc, length_error
    Status why(StatusCode::kIo, std::string("no memory to carry it out: ") + error.what());
    world.abort(why);
    return why;
  }
}

Status check_root(const Communicator& world, int root) {
  if (root >= 0 && root < world.size()) return {};
  return Status(
      StatusCode::kInvalidArgument,
      "root " + std::to_string(root) + " is not in a world of " + std::to_string(world.size()));
}

ConstBuffer bytes_of_text(std::string_view text) {
  return {text.data(), text.size(), DType::kU8};
}

Buffer room_in(std::string& text) {
  return {text.data(), text.size(), DType::kU8};
}

std::vector<std::size_t> as_counts(const Lengths& lengths) {
  return {lengths.begin(), lengths.end()};
}

// Cuts what lies one after the other.
ByteParts cut(std::string_view whole, const std::vector<std::size_t>& counts) {
  ByteParts parts;
  parts.reserve(counts.size());
  for (const std::size_t count : counts) {
    parts.emplace_back(whole.substr(0, count));
    whole.remove_prefix(count);
  }
  return parts;
}

Status exchange_lengths(Communicator& world, std::string_view own, Lengths& lengths) {
  lengths.resize(static_cast<std::size_t>(world.size()));
  const Lengths mine{static_cast<std::int64_t>(own.size())};
  return world.all_gather(mine, lengths);
}

// To all ranks, or to the root if there is one.
Status gather_parts(Communicator& world, std::string_view own, int root, ByteParts& parts) {
  Lengths lengths;
  DLAUNCH_RETURN_IF_ERROR(exchange_lengths(world, own, lengths));
  const auto counts = as_counts(lengths);
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const bool receives = root < 0 || root == world.rank();
  std::string whole(receives ? total : 0, '\0');
  if (total > 0) {
    DLAUNCH_RETURN_IF_ERROR(root < 0
                                ? world.all_gather(bytes_of_text(own), room_in(whole), counts)
                                : world.gather(bytes_of_text(own), room_in(whole), root, counts));
  }
  if (receives) parts = cut(whole, counts);
  return {};
}

Result<ByteParts> gathered(Communicator& world, std::string_view own, int root, const char* name) {
  ByteParts parts;
  const Status status = with_memory(world, [&] { return gather_parts(world, own, root, parts); });
  if (!status.ok()) return status.within(name);
  return parts;
}

Status broadcast_text_of(Communicator& world, std::string& bytes, int root) {
  Lengths length{static_cast<std::int64_t>(bytes.size())};
  DLAUNCH_RETURN_IF_ERROR(world.broadcast(length, root));
  bytes.resize(static_cast<std::size_t>(length[0]));
  return bytes.empty() ? Status() : world.broadcast(room_in(bytes), root);
}

Status scatter_parts(Communicator& world, std::span<const std::string> parts, int root,
                     std::string& own) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const bool is_root = world.rank() == root;
  // How many parts there are goes in front, so that all ranks learn of a wrong number.
  Lengths header(1 + ranks);
  if (is_root) header[0] = static_cast<std::int64_t>(parts.size());
  const bool right = is_root && parts.size() == ranks;
  for (std::size_t i = 0; right && i < ranks; ++i) {
    header[1 + i] = static_cast<std::int64_t>(parts[i].size());
  }
  DLAUNCH_RETURN_IF_ERROR(world.broadcast(header, root));
  if (header[0] != world.size()) {
    return Status(StatusCode::kInvalidArgument, "rank " + std::to_string(root) + " gave " +
                                                    std::to_string(header[0]) + " parts for " +
                                                    std::to_string(world.size()) + " ranks");
  }
  header.erase(header.begin());
  const auto counts = as_counts(header);
  std::string whole;
  if (is_root) {
    whole.reserve(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    for (const std::string& part : parts) whole += part;
  }
  own.resize(counts[static_cast<std::size_t>(world.rank())]);
  return world.scatter(bytes_of_text(whole), room_in(own), root, counts);
}

Status recv_text(Communicator& world, int peer, std::uint64_t tag, int& sender,
                 std::string& bytes) {
  Lengths length{0};
  DLAUNCH_RETURN_IF_ERROR(world.recv(length, peer, tag, &sender));
  bytes.resize(static_cast<std::size_t>(length[0]));
  // Of that sender: between its two messages those of others may come.
  return bytes.empty() ? Status() : world.recv(room_in(bytes), sender, tag);
}

std::string json_bytes(const nlohmann::json& object) {
  std::string bytes;
  nlohmann::json::to_cbor(object, bytes);
  return bytes;
}

Result<nlohmann::json> json_of(std::string_view bytes) {
  nlohmann::json object = nlohmann::json::from_cbor(bytes, true, false);
  if (object.is_discarded()) {
    return Status(StatusCode::kProtocol, "what came is no object in CBOR");
  }
  return object;
}

Result<std::vector<nlohmann::json>> all_json_of(const Result<ByteParts>& parts) {
  if (!parts.ok()) return parts.status();
  std::vector<nlohmann::json> objects;
  objects.reserve(parts->size());
  for (const std::string& part : *parts) {
    auto object = json_of(part);
    if (!object.ok()) return object.status();
    objects.push_back(*std::move(object));
  }
  return objects;
}

}  // namespace

Result<std::vector<std::string>> all_gather_bytes(Communicator& world, std::string_view own) {
  return gathered(world, own, -1, "all_gather_bytes");
}

Result<std::vector<std::string>> gather_bytes(Communicator& world, std::string_view own, int root) {
  DLAUNCH_RETURN_IF_ERROR(check_root(world, root).within("gather_bytes"));
  return gathered(world, own, root, "gather_bytes");
}

Status broadcast_bytes(Communicator& world, std::string& bytes, int root) {
  const Status status = with_memory(world, [&] { return broadcast_text_of(world, bytes, root); });
  return status.within("broadcast_bytes");
}

Result<std::string> scatter_bytes(Communicator& world, std::span<const std::string> parts,
                                  int root) {
  std::string own;
  const Status status = with_memory(world, [&] { return scatter_parts(world, parts, root, own); });
  if (!status.ok()) return status.within("scatter_bytes");
  return own;
}

Status send_bytes(Communicator& world, std::string_view bytes, int peer, std::uint64_t tag) {
  const std::int64_t length = static_cast<std::int64_t>(bytes.size());
  Status status = world.send(ConstBuffer(&length, 1, DType::kI64), peer, tag);
  if (status.ok() && !bytes.empty()) status = world.send(bytes_of_text(bytes), peer, tag);
  return status.within("send_bytes");
}

Result<std::string> recv_bytes(Communicator& world, int peer, std::uint64_t tag, int* sender) {
  std::string bytes;
  int from = peer;
  const Status status =
      with_memory(world, [&] { return recv_text(world, peer, tag, from, bytes); });
  if (!status.ok()) return status.within("recv_bytes");
  if (sender != nullptr) *sender = from;
  return bytes;
}

Result<std::vector<nlohmann::json>> all_gather_json(Communicator& world,
                                                    const nlohmann::json& own) {
  return all_json_of(all_gather_bytes(world, json_bytes(own)));
}

Result<std::vector<nlohmann::json>> gather_json(Communicator& world, const nlohmann::json& own,
                                                int root) {
  return all_json_of(gather_bytes(world, json_bytes(own), root));
}

Status broadcast_json(Communicator& world, nlohmann::json& object, int root) {
  std::string bytes = world.rank() == root ? json_bytes(object) : "";
  DLAUNCH_RETURN_IF_ERROR(broadcast_bytes(world, bytes, root));
  if (world.rank() == root) return {};
  auto received = json_of(bytes);
  if (!received.ok()) return received.status();
  object = *std::move(received);
  return {};
}

Result<nlohmann::json> scatter_json(Communicator& world, std::span<const nlohmann::json> parts,
                                    int root) {
  std::vector<std::string> encoded;
  if (world.rank() == root) {
    for (const nlohmann::json& part : parts) encoded.push_back(json_bytes(part));
  }
  auto own = scatter_bytes(world, encoded, root);
  if (!own.ok()) return own.status();
  return json_of(*own);
}

Status send_json(Communicator& world, const nlohmann::json& object, int peer, std::uint64_t tag) {
  return send_bytes(world, json_bytes(object), peer, tag);
}

Result<nlohmann::json> recv_json(Communicator& world, int peer, std::uint64_t tag, int* sender) {
  const auto bytes = recv_bytes(world, peer, tag, sender);
  if (!bytes.ok()) return bytes.status();
  return json_of(*bytes);
}

}  // namespace dlaunch
