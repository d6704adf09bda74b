// Whether programs can be executed, found out without running them.
#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/ranks/exec_check.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;

// Some containers forbid it to all: then nothing is checked before it is run.
bool may_be_traced() {
  const pid_t child = fork();
  if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

class CheckExec : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!may_be_traced()) GTEST_SKIP() << "ptrace is forbidden here";
  }
  ~CheckExec() override { std::filesystem::remove(program_); }

  Status check(const std::string& content) const {
    std::ofstream(program_) << content;
    chmod(program_.c_str(), 0755);
    return check_exec(program_, {"program", "argument"});
  }

  std::string program_ = ::testing::TempDir() + "/check_exec." + std::to_string(getpid());
};

TEST_F(CheckExec, RunsNothing) {
  const std::string trace = program_ + ".trace";
  sigset_t trap;
  sigset_t before;
  sigemptyset(&trap);
  sigaddset(&trap, SIGTRAP);
  for (const int how : {SIG_UNBLOCK, SIG_BLOCK}) {
    ASSERT_EQ(pthread_sigmask(how, &trap, &before), 0);
    EXPECT_TRUE(check("#!/bin/sh\ntouch '" + trace + "'\n").ok());
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    EXPECT_FALSE(std::filesystem::exists(trace));
  }
  EXPECT_TRUE(check_exec("/proc/self/exe", {"program"}).ok());
}

TEST(ExecError, IsNotTheProgramsIfTheSystemIsOutOfSomething) {
  EXPECT_EQ(exec_error("/bin/true", ENOMEM).code(), StatusCode::kIo);
  EXPECT_EQ(exec_error("/bin/true", EAGAIN).code(), StatusCode::kIo);
  EXPECT_EQ(exec_error("/bin/true", EACCES).code(), StatusCode::kInvalidArgument);
}

TEST_F(CheckExec, SaysWhatIsWrong) {
  const Status script = check("#!/nowhere/sh\n");
  EXPECT_EQ(script.code(), StatusCode::kNotFound);
  EXPECT_THAT(script.to_string(),
              HasSubstr("the interpreter '/nowhere/sh' it names does not exist"));
  EXPECT_THAT(check("#! /bin/sh\r\necho\r\n").to_string(),
              HasSubstr("interpreter '/bin/sh\\r' it"));
  EXPECT_THAT(check("#!/nowhere/env bash\n").to_string(),
              HasSubstr("interpreter '/nowhere/env' it"));
  EXPECT_EQ(check("").code(), StatusCode::kInvalidArgument);

  std::ifstream own("/proc/self/exe", std::ios::binary);
  std::string text(sizeof(Elf64_Ehdr), '\0');
  ASSERT_TRUE(own.read(text.data(), static_cast<std::streamsize>(text.size())));
  const Elf64_Half nobodys = 0xfefe;
  std::memcpy(text.data() + offsetof(Elf64_Ehdr, e_machine), &nobodys, sizeof nobodys);
  const Status foreign = check(text);
  EXPECT_EQ(foreign.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(foreign.to_string(), HasSubstr("cannot be executed on this machine"));
}

TEST_F(CheckExec, MissesSharedLibraries) {
  std::ostringstream own;
  own << std::ifstream("/proc/self/exe", std::ios::binary).rdbuf();
  std::string text = own.str();
  const std::string needed = "libc.so.6";
  ASSERT_NE(text.find(needed), std::string::npos);
  for (std::size_t at = 0; (at = text.find(needed, at)) != std::string::npos;)
    text[at + needed.size() - 1] = 'X';
  ::testing::internal::CaptureStderr();
  const Status status = check(text);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("libc.so.X"));
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.to_string(), HasSubstr("a shared library it needs cannot be loaded"));
}

}  // namespace
}  // namespace dlaunch
