#include "runtime/base/token_file.h"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/token.h"

namespace dlaunch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenFile : public ::testing::Test {
 protected:
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  std::string refusal() const {
    const auto token = read_token_file(path_);
    EXPECT_EQ(token.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(token.status().to_string(), HasSubstr("token file '" + path_ + "'"));
    return token.status().to_string();
  }
  void TearDown() override { unlink(path_.c_str()); }

  const std::string path_ = ::testing::TempDir() + "/token_file_test." + std::to_string(getpid());
  const std::string token_ = make_token();
};

TEST_F(TokenFile, IsReadWithOrWithoutANewlineAtItsEnd) {
  write(token_to_hex(token_));
  EXPECT_EQ(*read_token_file(path_), token_);
  write(token_to_hex(token_) + "\n");
  EXPECT_EQ(*read_token_file(path_), token_);
  write(token_to_hex(token_), 0400);
  EXPECT_EQ(*read_token_file(path_), token_);
}

TEST_F(TokenFile, ThatOthersCanReadOrWriteIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644, 0610}) {
    write(token_to_hex(token_), mode);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("others than its owner"), HasSubstr("chmod 600")));
  }
}

TEST_F(TokenFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  write(token_to_hex(token_));
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_THAT(refusal(), HasSubstr("belongs to another user"));
}

TEST_F(TokenFile, WithoutATokenIsRefused) {
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  for (const std::string& text : {std::string(), std::string("secret"), std::string(5000, 'a')}) {
    write(text);
    EXPECT_THAT(refusal(), HasSubstr("64 hexadecimal digits"));
  }
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);  // which a plain open() would wait for
  EXPECT_THAT(refusal(), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace dlaunch
