// Texts and objects between ranks where each knows the length of its own only: what programs tell
// each other beside their arrays. (MPI programs exchange lengths first, by hand; PyTorch calls
// these all_gather_object and so on.)
//
// Each of these is two blocking collectives of the communicator, or two messages, one for the
// length, and obeys its rules (communicator.h): collectives are called by all ranks in the same
// order, all of them by any thread; each of the two waits at most for the communicator's timeout;
// an error is the communicator's own. A root or peer that is not one of the ranks is
// kInvalidArgument, found before anything is sent, and fails nothing. A rank that has no memory for
// what comes fails the communicator, for all, with kIo.
//
// Lengths are bytes. Any will do, also none, and any contents, zero bytes too. They lie in host
// memory, also with communicators that have the memory of a device besides.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {

// --- collectives

/// What every rank gave, by rank; on every rank.
Result<std::vector<std::string>> all_gather_bytes(Communicator& world, std::string_view own);

/// What every rank gave, by rank; on the root. Elsewhere empty.
Result<std::vector<std::string>> gather_bytes(Communicator& world, std::string_view own, int root);

/// Makes everybody's bytes those of the root, as broadcast() does. After an error what they are on
/// the other ranks is not certain.
Status broadcast_bytes(Communicator& world, std::string& bytes, int root);

/// This rank's of the root's parts, one for each rank. On the other ranks `parts` is not looked at.
/// If their number is wrong all ranks get kInvalidArgument, and nothing has failed.
Result<std::string> scatter_bytes(Communicator& world, std::span<const std::string> parts,
                                  int root);

// --- messages

/// Sends bytes to rank `peer`, for recv_bytes() there. A long one may wait for its receiver. One
/// thread of a rank at a time may send to one peer with one tag, and receive with one.
Status send_bytes(Communicator& world, std::string_view bytes, int peer, std::uint64_t tag = 0);

/// The next bytes that rank `peer` has sent with the tag, or any rank: kAnyRank. `sender`, if not
/// null, is then the rank that sent them.
Result<std::string> recv_bytes(Communicator& world, int peer, std::uint64_t tag = 0,
                               int* sender = nullptr);

// --- JSON

// The same with JSON (include <nlohmann/json.hpp>), and so with all that it can be made from. It
// travels as CBOR: numbers and binary values arrive as they were. Bytes that are no such object are
// kProtocol. Where there is no memory to convert an object, std::bad_alloc is thrown.

Result<std::vector<nlohmann::json>> all_gather_json(Communicator& world, const nlohmann::json& own);
Result<std::vector<nlohmann::json>> gather_json(Communicator& world, const nlohmann::json& own,
                                                int root);
Status broadcast_json(Communicator& world, nlohmann::json& object, int root);
Result<nlohmann::json> scatter_json(Communicator& world, std::span<const nlohmann::json> parts,
                                    int root);
Status send_json(Communicator& world, const nlohmann::json& object, int peer,
                 std::uint64_t tag = 0);
Result<nlohmann::json> recv_json(Communicator& world, int peer, std::uint64_t tag = 0,
                                 int* sender = nullptr);

}  // namespace dlaunch
