#include "runtime/base/token.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sodium.h>

namespace dlaunch {
namespace {

static_assert(crypto_auth_BYTES == sizeof(Mac) && crypto_auth_KEYBYTES == kTokenBytes);

// libsodium must be initialised before use; sodium_init is idempotent and thread-safe.
void ensure_sodium() {
  if (sodium_init() < 0) {
    std::fputs("dlaunch: libsodium could not be initialised (no random source)\n", stderr);
    std::abort();
  }
}

}  // namespace

std::string make_token() {
  ensure_sodium();
  std::string token(kTokenBytes, '\0');
  randombytes_buf(token.data(), token.size());
  return token;
}

std::string token_to_hex(std::string_view token) {
  std::string hex(token.size() * 2 + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(token.data()),
                 token.size());
  hex.pop_back();  // the terminating zero that sodium writes
  return hex;
}

Result<std::string> token_from_hex(std::string_view hex) {
  while (!hex.empty() && std::strchr(" \t\r\n", hex.back()) != nullptr) hex.remove_suffix(1);
  std::string token(kTokenBytes, '\0');
  std::size_t length = 0;
  const char* end = nullptr;
  const int failed = sodium_hex2bin(reinterpret_cast<unsigned char*>(token.data()), token.size(),
                                    hex.data(), hex.size(), nullptr, &length, &end);
  if (failed != 0 || length != kTokenBytes || end != hex.data() + hex.size()) {
    return Status(StatusCode::kInvalidArgument,
                  "a job token is 64 hexadecimal digits (this one has " +
                      std::to_string(hex.size()) + " characters)");
  }
  return token;
}

Nonce make_nonce() {
  ensure_sodium();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Mac make_proof(std::string_view token, HandshakeRole prover, const Nonce& challenge,
               const Nonce& own) {
  ensure_sodium();
  if (token.size() != kTokenBytes) {
    std::fputs("dlaunch: make_proof called with a token of the wrong size\n", stderr);
    std::abort();
  }
  std::string message =
      prover == HandshakeRole::kConnector ? "dlaunch connector" : "dlaunch listener";
  message.append(reinterpret_cast<const char*>(challenge.data()), challenge.size());
  message.append(reinterpret_cast<const char*>(own.data()), own.size());
  Mac mac;
  crypto_auth(reinterpret_cast<unsigned char*>(mac.data()),
              reinterpret_cast<const unsigned char*>(message.data()), message.size(),
              reinterpret_cast<const unsigned char*>(token.data()));
  return mac;
}

bool proof_holds(const Mac& proof, std::string_view token, HandshakeRole prover,
                 const Nonce& challenge, const Nonce& provers_own) {
  const Mac expected = make_proof(token, prover, challenge, provers_own);
  return sodium_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

}  // namespace dlaunch
