// The job token: the secret that every connection proves before anything else is read from it.
//
// Proof is a mutual challenge and response with HMAC-SHA-512-256 (libsodium's crypto_auth): the
// token itself never travels. Both the store and the transport use the messages below.
//
//   listener -> connector   Challenge   32 random bytes
//   connector -> listener   Response    its own 32 random bytes, then
//                                       MAC(token, "connector" | listener's challenge | own
//                                       challenge)
//   listener -> connector   Answer      MAC(token, "listener" | connector's challenge | own
//   challenge)
//
// All functions are pure or use only the system's random source; any thread may call them.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace dlaunch {

inline constexpr std::size_t kTokenBytes = 32;
using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;

/// A fresh secret of kTokenBytes random bytes.
std::string make_token();
/// The form used in DLAUNCH_TOKEN and token files: 64 hexadecimal digits.
std::string token_to_hex(std::string_view token);
/// The inverse. White space at the end is ignored; anything else that is not 64 digits is
/// kInvalidArgument.
Result<std::string> token_from_hex(std::string_view hex);

Nonce make_nonce();

/// Bytes (a nonce, a MAC) as they are sent.
template <typename Byte, std::size_t N>
std::string_view as_text(const std::array<Byte, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

enum class HandshakeRole { kConnector, kListener };

/// What `prover` sends to prove that it knows the token. A job without a token (a world of one) has
/// no sockets, so `token` is never empty here.
Mac make_proof(std::string_view token, HandshakeRole prover, const Nonce& challenge,
               const Nonce& own);
/// Compares in constant time.
bool proof_holds(const Mac& proof, std::string_view token, HandshakeRole prover,
                 const Nonce& challenge, const Nonce& provers_own);

}  // namespace dlaunch
