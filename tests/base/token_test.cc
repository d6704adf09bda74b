#include "runtime/base/token.h"

#include <string>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

TEST(Token, IsFreshEveryTime) {
  const auto token = make_token();
  EXPECT_EQ(token.size(), kTokenBytes);
  EXPECT_NE(token, make_token());
  EXPECT_NE(make_nonce(), make_nonce());
}

TEST(Token, SurvivesItsHexadecimalForm) {
  std::string token(kTokenBytes, '\0');
  for (std::size_t i = 0; i < token.size(); ++i) token[i] = static_cast<char>(i * 8 + 7);
  const auto hex = token_to_hex(token);
  EXPECT_EQ(hex, "070f171f272f373f474f575f676f777f878f979fa7afb7bfc7cfd7dfe7eff7ff");
  for (const auto& form : {hex, hex + "\n", hex + " \t\r\n"}) {
    const auto read = token_from_hex(form);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(*read, token);
  }
}

TEST(Token, RefusesEverythingButSixtyFourDigits) {
  const auto hex = token_to_hex(make_token());
  for (const auto& wrong :
       {std::string(), std::string("\n"), hex.substr(1), hex.substr(2), hex + "0", hex + "00",
        hex + "\nx", " " + hex, "g" + hex.substr(1), hex.substr(0, 63) + ":", hex + hex}) {
    const auto read = token_from_hex(wrong);
    ASSERT_FALSE(read.ok()) << "'" << wrong << "'";
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(read.status().to_string().find(hex.substr(2, 10)), std::string::npos)
        << "the message must not tell the secret";
  }
}

class Proof : public ::testing::Test {
 protected:
  const std::string token_ = make_token();
  const Nonce challenge_ = make_nonce();
  const Nonce own_ = make_nonce();
  const Mac proof_ = make_proof(token_, HandshakeRole::kConnector, challenge_, own_);
};

TEST_F(Proof, HoldsForWhatItWasMadeFor) {
  EXPECT_TRUE(proof_holds(proof_, token_, HandshakeRole::kConnector, challenge_, own_));
}

TEST_F(Proof, DoesNotHoldInTheOtherDirection) {
  EXPECT_FALSE(proof_holds(proof_, token_, HandshakeRole::kListener, challenge_, own_));
  EXPECT_FALSE(proof_holds(proof_, token_, HandshakeRole::kConnector, own_, challenge_));
}

TEST_F(Proof, DoesNotHoldIfAnyBitOfAnythingDiffers) {
  for (std::size_t bit = 0; bit < std::size_t{32} * 8; ++bit) {
    const auto flip = [bit](auto bytes) {
      using Byte = typename decltype(bytes)::value_type;
      bytes[bit / 8] =
          static_cast<Byte>(static_cast<unsigned char>(bytes[bit / 8]) ^ (1U << (bit % 8)));
      return bytes;
    };
    constexpr auto kRole = HandshakeRole::kConnector;
    EXPECT_FALSE(proof_holds(flip(proof_), token_, kRole, challenge_, own_)) << "bit " << bit;
    EXPECT_FALSE(proof_holds(proof_, flip(token_), kRole, challenge_, own_)) << "bit " << bit;
    EXPECT_FALSE(proof_holds(proof_, token_, kRole, flip(challenge_), own_)) << "bit " << bit;
    EXPECT_FALSE(proof_holds(proof_, token_, kRole, challenge_, flip(own_))) << "bit " << bit;
  }
}

TEST(ProofDeathTest, OfAnEmptyTokenIsABrokenInvariant) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Nonce nonce{};
  EXPECT_DEATH(make_proof("", HandshakeRole::kConnector, nonce, nonce), "token of the wrong size");
}

}  // namespace
}  // namespace dlaunch
