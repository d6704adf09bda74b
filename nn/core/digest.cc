#include "nn/core/digest.h"

#include <array>

#include <sodium.h>

#include "nn/core/error.h"

namespace dlaunch::nn {
namespace {

constexpr std::size_t kBytes = 16;

}  // namespace

struct Digest::State {
  crypto_generichash_state hash;
};

Digest::Digest() : state_(std::make_unique<State>()) {
  // Idempotent and thread-safe; chooses the implementation for this CPU.
  if (sodium_init() < 0) throw Error("libsodium cannot be initialised");
  crypto_generichash_init(&state_->hash, nullptr, 0, kBytes);
}

Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) {
  crypto_generichash_update(&state_->hash, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

std::string Digest::finish() {
  std::array<unsigned char, kBytes> value{};
  crypto_generichash_final(&state_->hash, value.data(), value.size());
  std::array<char, 2 * kBytes + 1> text{};
  sodium_bin2hex(text.data(), text.size(), value.data(), value.size());
  return text.data();
}

std::string digest_of(std::span<const std::byte> bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.finish();
}

}  // namespace dlaunch::nn
